use std::fs;

use super::*;

const V1_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
const V1_GROUPS: &str = "9:name=systemd:/\n3:cpuset:/inner\n2:cpu,cpuacct:/job:1\n0::/\n";

fn fake(mounts: &str, groups: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::at(dir.path());
    for (file, text) in [("/proc/self/mountinfo", mounts), ("/proc/self/cgroup", groups)].iter().chain(files)
    {
        let path = root.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    (dir, root)
}

fn v1() -> (tempfile::TempDir, Root) {
    let files = [
        ("/sys/fs/cgroup/cpuset/inner/cpuset.cpus", "0-3"),
        ("/sys/fs/cgroup/cpuset/web/cpuset.cpus", "0-3"),
        ("/sys/fs/cgroup/cpu,cpuacct/web/cpuacct.usage", "7"),
        ("/sys/fs/cgroup/cpu,cpuacct/job:1/cpuacct.usage", "7"),
        ("/sys/fs/cgroup/cpu,cpuacct/only/cpuacct.usage", "7"),
        ("/sys/fs/cgroup/unified/cgroup.controllers", "\n"),
    ];
    fake(V1_MOUNTS, V1_GROUPS, &files)
}

#[test]
fn hybrid_machines_have_cpuset_in_version_1() {
    let (_dir, root) = v1();
    let setup = CgroupSetup::detect(&root).unwrap();
    assert_eq!(setup.to_string(), "hybrid, cpuset in version 1");
    assert_eq!(setup.v1["cpuset"].own, Path::new("/sys/fs/cgroup/cpuset/inner"));
    assert_eq!(setup.v1["cpuacct"].own, Path::new("/sys/fs/cgroup/cpu,cpuacct/job:1"));
    assert_eq!(setup.v1["cpu"], setup.v1["cpuacct"]);
    assert!(!setup.v1.contains_key("rw") && !setup.v2_cpuset);
}

#[test]
fn quotas_hold_from_the_own_group_up_to_the_root() {
    let (_dir, root) = v1();
    let of_cpu = CgroupSetup::detect(&root).unwrap().quota_dirs();
    assert_eq!(of_cpu, [Path::new("/sys/fs/cgroup/cpu,cpuacct/job:1")]);
    let mounts = "31 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let (_dir, root) = fake(mounts, "0::/\n", &[("/proc/7/cgroup", "0::/system.slice/web.service/worker\n")]);
    let names = ["system.slice/web.service/worker", "system.slice/web.service", "system.slice"];
    let expected = names.map(|name| Path::new("/sys/fs/cgroup").join(name));
    assert_eq!(CgroupSetup::of_process(&root, 7).unwrap().quota_dirs(), expected);
    assert!(CgroupSetup::detect(&root).unwrap().quota_dirs().is_empty(), "the root has no quota");
    assert!(CgroupSetup::of_process(&root, 8).is_err());
}

#[test]
fn a_new_version_1_group_lies_beneath_the_callers_own() {
    let (_dir, root) = v1();
    let group = WorkloadGroup::new(&root, &CgroupSetup::detect(&root).unwrap(), 42).unwrap();
    assert_eq!(group.version(), Version::V1);
    assert_eq!(group.cpuset_dir(), Path::new("/sys/fs/cgroup/cpuset/inner/gleaner-42"));
    let accounting = Path::new("/sys/fs/cgroup/cpu,cpuacct/job:1/gleaner-42");
    assert_eq!(group.accounting_dir(), Some(accounting));
    assert_eq!(group.writes().len(), 2);
    for write in group.writes() {
        write.target.write(&root, &write.value).unwrap();
    }
    assert!(root.exists(accounting) && root.exists(group.cpuset_dir()));
    let joins = [group.cpuset_dir().join("cgroup.procs"), accounting.join("cgroup.procs")];
    assert_eq!(group.procs_files(), joins);
}

#[test]
fn an_existing_version_1_group_is_found_by_any_of_its_names() {
    let (_dir, root) = v1();
    let setup = CgroupSetup::detect(&root).unwrap();
    for name in ["web", "/web", "/sys/fs/cgroup/cpuset/web", "/sys/fs/cgroup/cpu,cpuacct/web/"] {
        let group = WorkloadGroup::existing(&root, &setup, Path::new(name)).unwrap();
        assert_eq!(group.cpuset_dir(), Path::new("/sys/fs/cgroup/cpuset/web"), "{name}");
        assert!(group.accounting_dir().is_some() && group.writes().is_empty());
    }
    let error = |name: &str| WorkloadGroup::existing(&root, &setup, Path::new(name)).unwrap_err();
    assert!(matches!(error("/sys/fs/cgroup/cpu,cpuacct/only"), GroupUnavailable::NotFound { .. }));
    assert!(matches!(error("/sys/fs/cgroup/cpuset"), GroupUnavailable::IsRoot { .. }));
    fs::create_dir(root.path("/sys/fs/cgroup/cpuset/bare")).unwrap();
    assert!(matches!(error("bare"), GroupUnavailable::NoCpuset { .. }));
}

const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
const V2_GROUP: &str = "0::/user.slice/s.scope\n";

/// `/` delegates `root_control`, `user.slice` contains `slice_procs`, and `s.scope` contains the caller.
fn v2(root_control: &str, slice_controllers: &str, slice_procs: &str) -> (tempfile::TempDir, Root) {
    let files = [
        ("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory"),
        ("/sys/fs/cgroup/cgroup.subtree_control", root_control),
        ("/sys/fs/cgroup/cgroup.procs", "1"),
        ("/sys/fs/cgroup/user.slice/cgroup.type", "domain"),
        ("/sys/fs/cgroup/user.slice/cgroup.procs", slice_procs),
        ("/sys/fs/cgroup/user.slice/cgroup.controllers", slice_controllers),
        ("/sys/fs/cgroup/user.slice/cgroup.subtree_control", "memory"),
        ("/sys/fs/cgroup/user.slice/s.scope/cgroup.type", "domain"),
        ("/sys/fs/cgroup/user.slice/s.scope/cgroup.procs", "99"),
        ("/sys/fs/cgroup/user.slice/s.scope/cgroup.controllers", "memory"),
    ];
    fake(V2_MOUNT, V2_GROUP, &files)
}

fn planned(root: &Root) -> Vec<String> {
    let setup = CgroupSetup::detect(root).unwrap();
    let group = WorkloadGroup::new(root, &setup, 7).unwrap();
    assert_eq!(group.version(), Version::V2);
    assert_eq!(group.accounting_dir(), Some(group.cpuset_dir()));
    assert_eq!(group.procs_files().len(), 1);
    group.writes().iter().map(Write::to_string).collect()
}

#[test]
fn a_new_version_2_group_is_a_sibling_of_the_callers() {
    let (_dir, root) = v2("cpuset memory", "cpuset memory", "");
    let enable = "controller cpuset below /sys/fs/cgroup/user.slice = present";
    let create = "control group /sys/fs/cgroup/user.slice/gleaner-7 = present";
    assert_eq!(planned(&root), [create, enable]);
}

#[test]
fn the_controller_is_handed_down_from_above_when_the_slice_lacks_it() {
    let (_dir, root) = v2("memory", "memory", "");
    let expected = [
        "control group /sys/fs/cgroup/user.slice/gleaner-7 = present",
        "controller cpuset below /sys/fs/cgroup = present",
        "controller cpuset below /sys/fs/cgroup/user.slice = present",
    ];
    assert_eq!(planned(&root), expected);
}

#[test]
fn a_slice_with_processes_is_passed_over() {
    let (_dir, root) = v2("cpuset", "cpuset", "55");
    assert_eq!(planned(&root), ["control group /sys/fs/cgroup/gleaner-7 = present"]);
}

#[test]
fn a_namespace_whose_groups_all_have_processes_has_no_place() {
    let (_dir, root) = v2("cpuset", "cpuset", "55");
    fs::write(root.path("/sys/fs/cgroup/cgroup.type"), "domain").unwrap();
    let setup = CgroupSetup::detect(&root).unwrap();
    let error = WorkloadGroup::new(&root, &setup, 7).unwrap_err();
    assert!(matches!(error, GroupUnavailable::NoPlace { .. }), "{error}");
}

#[test]
fn an_existing_version_2_group_needs_the_controller() {
    let (_dir, root) = v2("cpuset", "cpuset", "");
    let setup = CgroupSetup::detect(&root).unwrap();
    let path = Path::new("/sys/fs/cgroup/user.slice/s.scope");
    let error = WorkloadGroup::existing(&root, &setup, path).unwrap_err();
    assert!(matches!(error, GroupUnavailable::NoCpuset { .. }), "{error}");
    fs::write(root.path(path).join("cpuset.cpus"), "\n").unwrap();
    let group = WorkloadGroup::existing(&root, &setup, path).unwrap();
    assert_eq!(group.procs_files(), [path.join("cgroup.procs")]);
    let writes = crate::lever::cpuset::writes(&group, &"0-1".parse().unwrap());
    assert_eq!(writes, [Write::text(path.join("cpuset.cpus"), "0-1")]);
}

#[test]
fn without_control_groups_the_reason_is_typed() {
    let (_dir, root) = fake("", "0::/\n", &[]);
    let setup = CgroupSetup::detect(&root).unwrap();
    assert_eq!(setup.to_string(), "not mounted, no cpuset controller");
    let error = WorkloadGroup::new(&root, &setup, 7).unwrap_err();
    assert!(matches!(error, GroupUnavailable::NoCpusetController), "{error}");
}

#[test]
fn a_mount_of_a_subtree_shows_groups_relative_to_it() {
    let mount = "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let (_dir, root) = fake(mount, "0::/docker/abc/app\n", &[]);
    let v2 = CgroupSetup::detect(&root).unwrap().v2.unwrap();
    assert_eq!(v2.own, Path::new("/sys/fs/cgroup/app"));
}
