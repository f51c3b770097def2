//! Consolidation by cpuset: the vCPUs that a workload's control group is allowed to use.

use std::path::{Path, PathBuf};

use gleaner_policy::CpuSet;

use super::Write;
use crate::cgroup::WorkloadGroup;
use crate::{KernelError, Root};

/// The file with a group's CPUs, of either version.
pub const FILE: &str = "cpuset.cpus";

/// The writes that confine the group to `active`. Version 1 and 2 have the same file with the same format.
///
/// On version 2 this also confines the groups below; on version 1 the kernel refuses (`EBUSY`) a set that does
/// not include those of the groups below. systemd writes the file of a unit of its own, too: see [`super::unit`].
pub fn writes(group: &WorkloadGroup, active: &CpuSet) -> Vec<Write> {
    vec![Write::text(group.cpuset_dir().join(FILE), active.to_string())]
}

/// Writes a kernel file. The kernel refuses to empty the CPU set of a group with processes; all possible CPUs
/// are written then: on version 2 the parent's limits apply anyway, even after hotplug.
pub(super) fn write(root: &Root, path: &Path, text: &str) -> Result<(), KernelError> {
    match root.write(path, text) {
        Err(error) if error.errno() == Some(libc::ENOSPC) && text.is_empty() && path.ends_with(FILE) => {
            root.write(path, &root.read("/sys/devices/system/cpu/possible")?)
        }
        other => other,
    }
}

/// The CPUs that the threads of the group `dir` may use: its own set within those of the groups above it. `None` if
/// the group has no CPU set.
pub fn effective(root: &Root, dir: &Path) -> Option<CpuSet> {
    let files = ["cpuset.cpus.effective", "cpuset.effective_cpus"];
    files.into_iter().find_map(|name| root.read_opt(dir.join(name)).ok().flatten()?.parse().ok())
}

/// A group below `dir`, at any depth, with a CPU set of its own other than `all`: its CPUs and their file. In version 1
/// every group has a set, at first mostly that of the group above it.
pub fn chosen_below(root: &Root, dir: &Path, all: &CpuSet) -> Option<(PathBuf, CpuSet)> {
    groups_below(root, dir).into_iter().find_map(|group| {
        let file = group.join(FILE);
        let cpus: CpuSet = root.read_opt(&file).ok().flatten()?.parse().ok()?;
        if !cpus.is_empty() && cpus != *all {
            return Some((file, cpus));
        }
        chosen_below(root, &group, all)
    })
}

/// Whether there are groups in the group `dir`.
pub fn has_groups(root: &Root, dir: &Path) -> bool {
    !groups_below(root, dir).is_empty()
}

/// The groups in the group `dir`; none if it is gone.
fn groups_below(root: &Root, dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root.path(dir)) else { return Vec::new() };
    let groups = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    groups.map(|entry| dir.join(entry.file_name())).collect()
}

/// The innermost systemd unit (`.service`, `.scope` or `.slice`) in the group's path.
///
/// `None` if systemd is not the init system.
pub fn managed_by_systemd(root: &Root, group: &Path) -> Option<String> {
    if !root.exists("/run/systemd/system") {
        return None;
    }
    let names = group.components().rev().filter_map(|component| component.as_os_str().to_str());
    let mut units = names.filter(|name| {
        let kind = Path::new(name).extension().and_then(|extension| extension.to_str());
        matches!(kind, Some("service" | "scope" | "slice"))
    });
    units.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_set_that_the_kernel_refuses_becomes_that_of_all_cpus() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        for path in ["/group", "/sys/devices/system/cpu"] {
            std::fs::create_dir_all(root.path(path)).unwrap();
        }
        std::fs::write(root.path("/sys/devices/system/cpu/possible"), "0-3\n").unwrap();
        for name in ["cpuset.cpus", "cpuset.mems"] {
            // /dev/full answers every write with the same error as the kernel.
            std::os::unix::fs::symlink("/dev/full", root.path(format!("/group/{name}"))).unwrap();
        }
        let said =
            |name: &str, text| write(&root, &Path::new("/group").join(name), text).unwrap_err().to_string();
        assert!(said(FILE, "").starts_with("cannot write `0-3` to "), "{}", said(FILE, ""));
        assert!(said(FILE, "1").starts_with("cannot write `1` to "), "{}", said(FILE, "1"));
        assert!(said("cpuset.mems", "").starts_with("cannot write `` to "), "{}", said("cpuset.mems", ""));
    }

    #[test]
    fn the_innermost_unit_is_named_only_under_systemd() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let group = Path::new("/sys/fs/cgroup/user.slice/user@1.service/app.slice/db.service/inner");
        assert_eq!(managed_by_systemd(&root, group), None);
        std::fs::create_dir_all(root.path("/run/systemd/system")).unwrap();
        assert_eq!(managed_by_systemd(&root, group).as_deref(), Some("db.service"));
        let pod = Path::new("/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice");
        assert_eq!(managed_by_systemd(&root, pod).as_deref(), Some("kubepods-pod1.slice"));
        assert_eq!(managed_by_systemd(&root, Path::new("/sys/fs/cgroup/mine")), None);
    }

    #[test]
    fn a_set_of_a_group_below_is_found_at_any_depth() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let all: CpuSet = "0-3".parse().unwrap();
        let pod = Path::new("/pod");
        let put = |group: &str, cpus: &str| {
            std::fs::create_dir_all(root.path(group)).unwrap();
            std::fs::write(root.path(group).join(FILE), cpus).unwrap();
        };
        put("/pod", "0");
        assert!(!has_groups(&root, pod));
        put("/pod/one", "\n");
        put("/pod/two", "0-3\n");
        assert!(has_groups(&root, pod));
        assert_eq!(chosen_below(&root, pod, &all), None, "none, and all");
        put("/pod/two/inner", "2-3\n");
        let found = ("/pod/two/inner/cpuset.cpus".into(), "2-3".parse().unwrap());
        assert_eq!(chosen_below(&root, pod, &all), Some(found));
        assert_eq!(chosen_below(&root, Path::new("/gone"), &all), None);
    }
}
