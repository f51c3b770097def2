//! Whether two workloads have processes in common: then only one of them is controlled.

use std::path::Path;

use gleaner_discover::Key;
use gleaner_kernel::Root;

use crate::engaged::Identity;

/// How many ancestors of a process are followed at most, in case that the chain changes meanwhile and has no end.
const MOST_ANCESTORS: usize = 100;

/// A workload, by what identifies it and the process that heads it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent<'a> {
    pub(super) key: &'a Key,
    pub(super) main: Option<u32>,
}

impl Identity {
    pub(super) fn extents(&self) -> impl Iterator<Item = Extent<'_>> {
        self.parts().map(|part| Extent { key: &part.key, main: part.pid })
    }

    /// Whether the two have processes in common.
    pub(super) fn overlaps(&self, other: &Self, root: &Root) -> bool {
        self.extents().any(|own| other.extents().any(|theirs| own.overlaps(&theirs, root)))
    }
}

impl Extent<'_> {
    /// Whether the two have processes in common, as far as the heads of both show.
    pub(super) fn overlaps(&self, other: &Self, root: &Root) -> bool {
        match (self.key, other.key) {
            (Key::Group(one), Key::Group(two)) => one.starts_with(two) || two.starts_with(one),
            _ => self.is_below(other, root) || other.is_below(self, root),
        }
    }

    /// Whether the process that heads this one belongs to the other one.
    fn is_below(&self, other: &Self, root: &Root) -> bool {
        let Some(main) = self.main else { return false };
        match other.key {
            Key::Group(group) => groups(root, main).iter().any(|own| Path::new(own).starts_with(group)),
            Key::Process { pid, .. } => ancestors(root, main).contains(pid),
        }
    }
}

/// The groups of a process, one in each hierarchy.
pub(super) fn groups(root: &Root, pid: u32) -> Vec<String> {
    let text = root.read_opt(format!("/proc/{pid}/cgroup")).ok().flatten().unwrap_or_default();
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).map(str::to_owned).collect()
}

/// A process and its ancestors.
fn ancestors(root: &Root, pid: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = root.read_opt(format!("/proc/{pid}/stat")).ok()??;
        // The name in parentheses can hold anything.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let mut line = vec![pid];
    while let Some(next) =
        line.last().and_then(|pid| parent(*pid)).filter(|next| *next > 1 && line.len() < MOST_ANCESTORS)
    {
        line.push(next);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell, 5, started 7, which is in a group of its own.
    fn machine() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, stat, group) in
            [(7, "7 (a) b) S 5 7 7", "/system.slice/db.service/worker"), (5, "5 (sh) S 1 5 5", "/user.slice")]
        {
            let own = dir.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&own).unwrap();
            std::fs::write(own.join("stat"), stat).unwrap();
            std::fs::write(own.join("cgroup"), format!("3:cpuset:/\n0::{group}\n")).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    fn process(pid: u32) -> (Key, Option<u32>) {
        (Key::Process { pid, start_ticks: 1 }, Some(pid))
    }

    fn group(path: &str, main: Option<u32>) -> (Key, Option<u32>) {
        (Key::Group(path.into()), main)
    }

    #[test]
    fn ancestors_are_followed_whatever_a_process_is_called() {
        let (_dir, root) = machine();
        assert_eq!(ancestors(&root, 7), [7, 5]);
    }

    #[test]
    fn a_part_overlaps_the_whole_either_way() {
        let (_dir, root) = machine();
        let overlap = |one: &(Key, Option<u32>), two: &(Key, Option<u32>)| {
            let [one, two] = [one, two].map(|(key, main)| Extent { key, main: *main });
            let result = one.overlaps(&two, &root);
            assert_eq!(two.overlaps(&one, &root), result);
            result
        };
        let service = group("/system.slice/db.service", None);
        for (part, whole) in [
            (group("/system.slice/db.service/worker", None), service.clone()),
            (process(7), service.clone()),
            (process(7), process(5)),
            (group("/system.slice/db.service", Some(7)), process(5)),
            (process(7), process(7)),
        ] {
            assert!(overlap(&part, &whole), "{part:?} and {whole:?}");
        }
        for (one, two) in [
            (group("/system.slice/db.service2", None), service.clone()),
            (process(5), service),
            (process(8), process(7)),
        ] {
            assert!(!overlap(&one, &two), "{one:?} and {two:?}");
        }
    }
}
