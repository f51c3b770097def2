//! What the daemon says of itself: the types of `DaemonStatus` in the interface's description, which explains each field.

use gleaner_policy::{CpuSet, Method};
use serde::{Deserialize, Serialize};

/// What the daemon does for the machine as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It helps workloads.
    #[default]
    Running,
    /// Everything is untouched until `Resume`.
    Paused,
    /// Nothing polls within the configured hours.
    QuietHours,
    /// Nothing polls until a burstable instance has more CPU credits.
    CreditsLow,
}

/// A retention as the interface has it; see [`gleaner_policy::Retention`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// How idle vCPUs are kept from halting.
    pub method: Method,
    /// For how long at most, in microseconds; `None` where the method has no limit.
    pub limit_us: Option<u64>,
}

impl From<gleaner_policy::Retention> for Retention {
    fn from(retention: gleaner_policy::Retention) -> Self {
        let limited = !matches!(retention.method, Method::Halt | Method::QosPoll);
        let us = u64::try_from(retention.limit.as_micros()).unwrap_or(u64::MAX);
        Self { method: retention.method, limit_us: limited.then_some(us) }
    }
}

/// The machine and what is in force for all workloads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The vCPUs that are online.
    pub vcpus: CpuSet,
    /// The retention that is used where retention pays.
    pub method: Method,
    /// Cost of a halt and the wake-up from it, in microseconds.
    pub wake_cost_us: f64,
    /// The retention in force.
    pub retention: Retention,
    /// Share of all vCPU time spent polling lately, 0 to 1.
    pub polling_share: f64,
    /// The share that is allowed, 0 to 1.
    pub polling_share_allowed: f64,
}

/// What the daemon itself uses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time since its start.
    pub cpu_ms: u64,
    /// Share of one vCPU used lately.
    pub cpu_share: f64,
    /// Resident memory.
    pub memory_bytes: u64,
}

/// Whether a workload is controlled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its wake-ups are counted with all others.
    Watched,
    /// It has a controller of its own.
    Engaged,
    /// It is not controlled, whatever its wake-ups cost.
    LeftAlone,
}

/// What the machine's retention does to a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stake {
    /// Retention speeds it up.
    Helped,
    /// Retention does it no harm.
    Tolerates,
    /// Retention slows it down, so that it is off.
    Objects,
}

/// One workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Unique: what `Why` and `Detach` take.
    pub name: String,
    /// Its systemd unit.
    pub unit: Option<String>,
    /// Its control group, as in `/proc/PID/cgroup`.
    pub group: Option<String>,
    /// Its main process, or the one that was attached to.
    pub pid: Option<u32>,
    /// Whether it is controlled.
    pub state: State,
    /// Why it is in that state, as a sentence.
    pub reason: Option<String>,
    /// What retention does to it.
    pub stake: Option<Stake>,
    /// The vCPUs on which it is allowed to run now.
    pub active: Option<CpuSet>,
    /// The vCPUs that it had at first.
    pub allowed: Option<CpuSet>,
    /// What is on trial for it, as a sentence.
    pub trial: Option<String>,
    /// The evidence of its speed-up, as a sentence.
    pub evidence: Option<String>,
    /// Wake-ups per second.
    pub wakeups_per_s: f64,
    /// CPU time per time: 1 is one vCPU.
    pub load: f64,
    /// How long it has been engaged.
    pub since_ms: Option<u64>,
}

/// A decision or a remark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// How long ago.
    pub ago_ms: u64,
    /// The workload concerned; `None` if it is the machine.
    pub workload: Option<String>,
    /// The sentence, as in `gleaner why`.
    pub text: String,
}

/// Everything that `gleaner status` shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// Time since its start.
    pub uptime_ms: u64,
    /// What it does for the machine as a whole.
    pub mode: Mode,
    /// Why it does not do everything that it could, as a sentence.
    pub mode_reason: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// What the daemon itself uses.
    pub usage: Usage,
    /// Engaged ones first, then those that are left alone, each by wake-ups.
    pub workloads: Vec<Workload>,
    /// Number of changes in force.
    pub leases: u64,
    /// The file that records them.
    pub lease_file: String,
    /// The latest few, newest first.
    pub decisions: Vec<Decision>,
    /// What is not available here, or was stepped back from, as sentences.
    pub limits: Vec<String>,
}
