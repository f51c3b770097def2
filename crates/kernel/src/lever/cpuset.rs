//! Which vCPUs a workload's control group may use: consolidation by cpuset.

use std::path::Path;

use gleaner_policy::CpuSet;

use super::Write;
use crate::Root;
use crate::cgroup::WorkloadGroup;

/// What to write so that the group runs on `active` only. Version 1 and 2 have the same file with the same format.
///
/// Groups beneath this one follow by themselves on version 2; on version 1 the kernel refuses (`EBUSY`) a set that
/// does not include those of the groups beneath.
/// A group that systemd manages ([`managed_by_systemd`]) is written all the same: systemd keeps its own view of
/// `AllowedCPUs=` and may write the file again at a reload or when the unit's properties change. The lease then sees
/// a value that is not its own, and leaves it alone.
pub fn writes(group: &WorkloadGroup, active: &CpuSet) -> Vec<Write> {
    vec![Write::text(group.cpuset_dir().join("cpuset.cpus"), active.to_string())]
}

/// The systemd unit (`.service` or `.scope`) that the group belongs to: the innermost one in its path.
///
/// None where systemd is not the init system.
pub fn managed_by_systemd(root: &Root, group: &Path) -> Option<String> {
    if !root.exists("/run/systemd/system") {
        return None;
    }
    let names = group.components().rev().filter_map(|component| component.as_os_str().to_str());
    let mut units = names.filter(|name| {
        let kind = Path::new(name).extension().and_then(|extension| extension.to_str());
        matches!(kind, Some("service" | "scope"))
    });
    units.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_unit_is_named_only_under_systemd() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let group = Path::new("/sys/fs/cgroup/user.slice/user@1.service/app.slice/db.service/inner");
        assert_eq!(managed_by_systemd(&root, group), None);
        std::fs::create_dir_all(root.path("/run/systemd/system")).unwrap();
        assert_eq!(managed_by_systemd(&root, group).as_deref(), Some("db.service"));
        assert_eq!(managed_by_systemd(&root, Path::new("/sys/fs/cgroup/my.slice")), None);
    }
}
