//! Finds the holder of a state directory without touching its lock: trying the lock could keep a Gleaner from
//! starting.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use gleaner_kernel::Root;

use super::{HOLDER_FILE, LOCK_FILE};

/// PID of the process that holds the lock in the state directory `dir`; `None` if there is none or it cannot be
/// seen.
pub(super) fn holder(root: &Root, dir: &Path) -> Option<u32> {
    // Works without permission to read the lock file.
    let inode = fs::metadata(dir.join(LOCK_FILE)).ok()?.ino();
    let written = fs::read_to_string(dir.join(HOLDER_FILE)).ok()?.trim().parse().ok()?;
    holds(&root.read("/proc/locks").ok()?, inode, written).then_some(written)
}

/// Whether `locks` (the text of `/proc/locks`) has an exclusive lock by `pid` on this inode. The device is not
/// compared, since some file systems show another one there.
fn holds(locks: &str, inode: u64, pid: u32) -> bool {
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // `1: FLOCK ADVISORY WRITE 4711 00:1a:815 0 EOF`; waiting processes have `->` in the second field.
        let [_, "FLOCK", _, "WRITE", holder, file, ..] = fields[..] else { return false };
        holder.parse() == Ok(pid) && file.rsplit(':').next().and_then(|n| n.parse().ok()) == Some(inode)
    })
}

#[cfg(test)]
mod tests {
    use crate::StateDir;

    use super::*;

    #[test]
    fn only_the_holder_of_this_file_counts() {
        let locks = "1: FLOCK  ADVISORY  WRITE 4711 00:1a:815 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 12 00:1a:815 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 13 00:1a:815 0 EOF\n3: FLOCK  ADVISORY  READ 14 00:1a:815 0 EOF\n";
        assert!(holds(locks, 815, 4711));
        assert!(!holds(locks, 816, 4711));
        for pid in [12, 13, 14] {
            assert!(!holds(locks, 815, pid), "{pid}");
        }
    }

    #[test]
    fn a_lock_that_is_held_is_seen_and_one_that_was_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path().join("gleaner")).unwrap();
        let root = Root::system();
        assert_eq!(state.holder(&root), None);
        let held = state.lock().unwrap();
        assert_eq!(state.holder(&root), Some(std::process::id()));
        drop(held);
        assert_eq!(state.holder(&root), None);
    }
}
