//! A workload that could be engaged, and what identifies it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What identifies a workload for as long as it exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A control group with everything below it: its path within the hierarchy, with the leading slash, as in
    /// `/proc/PID/cgroup`.
    Group(PathBuf),
    /// A process with its children that run the same executable, in a group that is no workload of its own.
    Process {
        /// The process that heads them.
        pid: u32,
        /// When it started, in ticks since boot: a reused PID is another workload.
        start_ticks: u64,
    },
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(path) => write!(f, "group {}", path.display()),
            Self::Process { pid, .. } => write!(f, "process {pid}"),
        }
    }
}

/// What sort of workload it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A service of systemd or `OpenRC`.
    Service,
    /// A scope of systemd, such as a user's session.
    Scope,
    /// A container, or a pod with all of its containers.
    Container,
    /// A control group that somebody made by hand.
    Group,
    /// A process outside of these.
    Process,
}

impl Kind {
    /// The word for it, in output and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Scope => "scope",
            Self::Container => "container",
            Self::Group => "group",
            Self::Process => "process",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What rules are asked about: whether the survey is allowed to look into this workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The sort of workload.
    pub kind: Kind,
    /// The unit of systemd, such as `redis-server.service`.
    pub unit: Option<&'a str>,
    /// The control group, within the hierarchy: `/` for the root group.
    pub group: &'a Path,
    /// The executable of the main process. `None` for a group that was not looked into yet: a rule by executable
    /// is asked about it once it is known.
    pub executable: Option<&'a Path>,
    /// The main process; `None` where the executable is.
    pub pid: Option<u32>,
}

/// A workload of this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its identity.
    pub key: Key,
    /// Unique among the present candidates and kept for life; letters, digits and `._@:+-` alone, so that it can
    /// stand in a file's name.
    pub name: String,
    /// The sort of workload.
    pub kind: Kind,
    /// The unit of systemd, such as `redis-server.service`.
    pub unit: Option<String>,
    /// The control group, within the hierarchy: `/` for the root group.
    pub group: PathBuf,
    /// CPU time per time over `span`, in vCPUs.
    pub load: f64,
    /// The time over which `load` and `switches_per_s` are averages: since the survey before. Zero where there was
    /// none, so that nothing is known yet.
    pub span: Duration,
    /// The process that heads it: of a group only known once it was looked into.
    pub main: Option<Main>,
    /// What only looking into it shows; `None` while its load is below [`Candidate::LOOK_INTO`].
    pub activity: Option<Activity>,
}

/// The process that heads a candidate: of a group the one that started first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Main {
    /// Its PID.
    pub pid: u32,
    /// When it started, in ticks since boot.
    pub start_ticks: u64,
    /// Its name (`comm`).
    pub command: String,
    /// Its executable, as its own mount namespace names it; `None` where reading that is not permitted.
    pub executable: Option<PathBuf>,
}

/// The processes and threads of a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Activity {
    /// Number of processes.
    pub processes: u32,
    /// Number of threads.
    pub threads: u32,
    /// How often its threads were put on a vCPU, per second; `None` until two surveys looked into it, or where the
    /// kernel does not count that.
    pub switches_per_s: Option<f64>,
}

impl Candidate {
    /// The load from which a candidate is looked into, in vCPUs. A wake-up takes some microseconds of CPU time, so
    /// what uses less than this cannot lose a significant share of a vCPU's time to wake-ups.
    pub const LOOK_INTO: f64 = 0.005;

    /// What rules are asked about.
    pub fn subject(&self) -> Subject<'_> {
        Subject {
            kind: self.kind,
            unit: self.unit.as_deref(),
            group: &self.group,
            executable: self.main.as_ref().and_then(|main| main.executable.as_deref()),
            pid: self.main.as_ref().map(|main| main.pid),
        }
    }

    /// How often its threads were put on a vCPU, per second, where that is known.
    pub fn switches_per_s(&self) -> Option<f64> {
        self.activity?.switches_per_s
    }
}
