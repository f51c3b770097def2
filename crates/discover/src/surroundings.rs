//! Where the daemon runs: what it can see and change from there, and what not.

use std::fmt;

use gleaner_kernel::Root;
use gleaner_kernel::cgroup::CgroupSetup;
use gleaner_kernel::hypervisor::{Hypervisor, HypervisorKind};

/// Which versions of control groups are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupLayout {
    /// Version 1 alone.
    V1,
    /// Version 2 alone.
    V2,
    /// Both, in different hierarchies.
    Hybrid,
    /// Neither.
    None,
}

/// What surrounds the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
// Each is a fact of its own.
#[allow(clippy::struct_excessive_bools)]
pub struct Surroundings {
    /// Whether systemd runs this system.
    pub systemd: bool,
    /// The mounted control groups.
    pub cgroup: CgroupLayout,
    /// The container that the daemon is in, by its manager's name (`docker`, `podman`, `lxc`, ...), or `unknown`.
    pub container: Option<String>,
    /// The hypervisor below.
    pub hypervisor: HypervisorKind,
    /// Whether all processes of the machine are visible, rather than those of one PID namespace.
    pub all_processes: bool,
    /// Whether all control groups of the machine are visible, rather than those below one.
    pub all_groups: bool,
    /// Whether the settings of idle vCPUs can be changed.
    pub idle_settings: bool,
    /// Whether control groups can be changed; false without any.
    pub group_settings: bool,
}

/// Inodes of the initial namespaces (kernel: `include/linux/proc_ns.h`), which are part of its ABI.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
const INITIAL_CGROUP_NAMESPACE: &str = "cgroup:[4026531835]";

impl Surroundings {
    /// Finds out, without privileges. What cannot be read counts as not there.
    pub fn detect(root: &Root) -> Self {
        let setup = CgroupSetup::detect(root).unwrap_or_default();
        let mounts = root.read("/proc/self/mountinfo").unwrap_or_default();
        let all_processes = sees_all_processes(root);
        let all_groups =
            is_namespace(root, "cgroup", INITIAL_CGROUP_NAMESPACE) && shows_whole_hierarchies(&mounts);
        Self {
            systemd: root.exists("/run/systemd/system"),
            cgroup: match (setup.v1.is_empty(), setup.v2.is_some()) {
                (true, true) => CgroupLayout::V2,
                (true, false) => CgroupLayout::None,
                (false, true) => CgroupLayout::Hybrid,
                (false, false) => CgroupLayout::V1,
            },
            container: container(root).or_else(|| (!all_processes).then(|| UNKNOWN.to_owned())),
            hypervisor: Hypervisor::read(root).kind,
            all_processes,
            all_groups,
            idle_settings: is_writable(root, &mounts, "/sys/module"),
            group_settings: setup
                .v2
                .iter()
                .chain(setup.v1.values())
                // systemd takes the right to write in the topmost directory from everybody, root without
                // CAP_DAC_OVERRIDE included, but not that to its files and to what is below.
                .any(|mounted| {
                    ["", "/cgroup.procs"]
                        .iter()
                        .any(|file| is_writable(root, &mounts, &format!("{}{file}", mounted.mount.display())))
                }),
        }
    }

    /// What cannot be seen or changed from here, in sentences with their remedies.
    pub fn limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        let mut add = |holds: bool, sentence: &str| {
            if holds {
                limits.push(sentence.to_owned());
            }
        };
        add(
            !self.all_processes,
            "sees only the processes of this container: share the host's PID namespace (docker run --pid=host, \
             hostPID: true) to help the whole machine",
        );
        add(
            !self.all_groups,
            "sees only the control groups below its own: share the host's cgroup namespace (docker run \
             --cgroupns=host) and mount /sys/fs/cgroup of the host",
        );
        add(
            !self.idle_settings,
            "cannot let idle vCPUs poll: /sys cannot be written; run as root on the machine itself or in a privileged \
             container",
        );
        add(
            self.cgroup != CgroupLayout::None && !self.group_settings,
            "cannot change control groups: their directories cannot be written; threads are placed one by one by their \
             affinity",
        );
        add(
            self.cgroup == CgroupLayout::None,
            "there are no control groups: each process with its workers is a workload of its own",
        );
        limits
    }
}

const UNKNOWN: &str = "unknown";

/// Whether all processes of the machine are visible.
pub(crate) fn sees_all_processes(root: &Root) -> bool {
    is_namespace(root, "pid", INITIAL_PID_NAMESPACE)
}

/// Whether the daemon is in this namespace; assumed where the kernel has no namespaces.
fn is_namespace(root: &Root, kind: &str, initial: &str) -> bool {
    let link = std::fs::read_link(root.path(format!("/proc/self/ns/{kind}")));
    link.map_or(true, |found| found.as_os_str() == initial)
}

/// Whether no cgroup mount shows a subtree alone.
fn shows_whole_hierarchies(mounts: &str) -> bool {
    mounts.lines().filter(|line| line.contains(" - cgroup")).all(|line| line.split(' ').nth(3) == Some("/"))
}

/// Whether `directory` can be written: its mount is writable, and the caller has the right.
fn is_writable(root: &Root, mounts: &str, directory: &str) -> bool {
    use nix::unistd::{AccessFlags, access};
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(4);
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(point, _)| std::path::Path::new(directory).starts_with(point))
        // Later mounts hide earlier ones at the same place.
        .max_by_key(|(point, _)| point.len());
    let is_read_only = mount.is_some_and(|(_, options)| options.split(',').any(|option| option == "ro"));
    !is_read_only && access(&root.path(directory), AccessFlags::W_OK).is_ok()
}

/// The container's manager, by what it leaves in the container.
fn container(root: &Root) -> Option<String> {
    // systemd and its friends write it there for everybody.
    let named =
        root.read("/run/systemd/container").or_else(|_| root.read("/run/host/container-manager")).ok();
    if let Some(name) = named.filter(|name| !name.is_empty()) {
        return Some(name);
    }
    if root.exists("/run/.containerenv") {
        return Some("podman".to_owned());
    }
    if root.exists("/.dockerenv") {
        return Some("docker".to_owned());
    }
    if root.exists("/var/run/secrets/kubernetes.io") {
        return Some("kubernetes".to_owned());
    }
    let environment = root.read("/proc/1/environ").unwrap_or_default();
    let name = environment.split('\0').find_map(|variable| variable.strip_prefix("container="))?;
    Some(if name.is_empty() { UNKNOWN.to_owned() } else { name.to_owned() })
}

impl fmt::Display for CgroupLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V1 => "version 1",
            Self::V2 => "version 2",
            Self::Hybrid => "hybrid",
            Self::None => "not mounted",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake, link, put};

    const V2: &str =
        "24 1 0:22 / /sys ro,nosuid - sysfs sysfs rw\n30 24 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n";

    #[test]
    fn on_a_machine_with_systemd_everything_is_there() {
        let (_dir, root) = fake();
        put(&root, "/proc/self/mountinfo", &V2.replace(" ro", " rw"));
        put(&root, "/proc/self/cgroup", "0::/system.slice/gleanerd.service\n");
        link(&root, "/proc/self/ns/pid", INITIAL_PID_NAMESPACE);
        link(&root, "/proc/self/ns/cgroup", INITIAL_CGROUP_NAMESPACE);
        for dir in ["/run/systemd/system", "/sys/module", "/sys/fs/cgroup"] {
            put(&root, &format!("{dir}/here"), "");
        }
        let found = Surroundings::detect(&root);
        assert!(found.systemd && found.all_processes && found.all_groups && found.container.is_none());
        assert!(found.idle_settings && found.group_settings);
        assert_eq!((found.cgroup, found.limits().len()), (CgroupLayout::V2, 0));
    }

    #[test]
    fn in_a_container_it_says_what_is_missing() {
        let (_dir, root) = fake();
        put(&root, "/proc/self/mountinfo", V2);
        put(&root, "/proc/self/cgroup", "0::/\n");
        link(&root, "/proc/self/ns/pid", "pid:[4026532456]");
        link(&root, "/proc/self/ns/cgroup", "cgroup:[4026532457]");
        for file in ["/.dockerenv", "/sys/module/here", "/sys/fs/cgroup/here"] {
            put(&root, file, "");
        }
        let found = Surroundings::detect(&root);
        assert_eq!(found.container.as_deref(), Some("docker"));
        assert!(!found.systemd && !found.all_processes && !found.all_groups);
        assert!(!found.idle_settings && !found.group_settings);
        let limits = found.limits();
        assert!(limits.len() == 4 && limits[0].contains("--pid=host"), "{limits:?}");
    }

    #[test]
    fn managers_are_named() {
        let named = |file: &str, text: &str| {
            let (_dir, root) = fake();
            put(&root, file, text);
            container(&root)
        };
        assert_eq!(named("/run/systemd/container", "systemd-nspawn\n").as_deref(), Some("systemd-nspawn"));
        assert_eq!(named("/run/.containerenv", "").as_deref(), Some("podman"));
        assert_eq!(named("/proc/1/environ", "PATH=/bin\0container=lxc\0").as_deref(), Some("lxc"));
        assert_eq!(named("/proc/1/environ", "PATH=/bin\0"), None);
    }

    #[test]
    fn version_1_and_none() {
        let (_dir, root) = fake();
        assert_eq!(Surroundings::detect(&root).cgroup, CgroupLayout::None);
        assert_eq!(Surroundings::detect(&root).limits().len(), 2, "no groups, and no /sys");
        let mount = "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
        put(&root, "/proc/self/mountinfo", mount);
        put(&root, "/proc/self/cgroup", "3:cpuset:/\n");
        assert_eq!(Surroundings::detect(&root).cgroup, CgroupLayout::V1);
        put(&root, "/proc/self/mountinfo", &format!("{V2}{mount}"));
        put(&root, "/sys/fs/cgroup/cgroup.controllers", "");
        assert_eq!(Surroundings::detect(&root).cgroup, CgroupLayout::Hybrid);
        let subtree = "30 24 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert!(!shows_whole_hierarchies(subtree) && shows_whole_hierarchies(V2));
    }

    #[test]
    fn this_machine_is_what_it_is() {
        let found = Surroundings::detect(&Root::system());
        assert_eq!(found.systemd, std::path::Path::new("/run/systemd/system").exists());
        assert!(found.limits().iter().all(|limit| !limit.is_empty()));
    }
}
