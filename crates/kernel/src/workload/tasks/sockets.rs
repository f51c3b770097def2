//! Whether processes have sockets open: their descriptors are links to `socket:[INODE]`.

use std::fs;

use crate::Root;

/// Whether one of the processes has an open socket, or there are more than `most` descriptors. Processes that
/// have ended or are not readable count as having none.
pub(in crate::workload) fn have_sockets(root: &Root, processes: &[u32], most: usize) -> bool {
    let mut left = most;
    for pid in processes {
        let Ok(open) = fs::read_dir(root.path(format!("/proc/{pid}/fd"))) else { continue };
        for descriptor in open.flatten() {
            let target = fs::read_link(descriptor.path());
            if left == 0 || target.is_ok_and(|to| to.to_string_lossy().starts_with("socket:")) {
                return true;
            }
            left -= 1;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_socket_is_found_among_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let fd = |pid: u32, number: u32, target: &str| {
            let place = root.path(format!("/proc/{pid}/fd"));
            fs::create_dir_all(&place).unwrap();
            symlink(target, place.join(number.to_string())).unwrap();
        };
        for (number, target) in ["/dev/null", "pipe:[7]", "anon_inode:[eventpoll]"].iter().enumerate() {
            fd(10, u32::try_from(number).unwrap(), target);
        }
        // Process 30 has ended.
        assert!(!have_sockets(&root, &[10, 30], 500));
        assert!(have_sockets(&root, &[10, 30], 2), "not all were checked");
        fd(20, 3, "socket:[4711]");
        assert!(have_sockets(&root, &[10, 20, 30], 500));
    }
}
