//! What is in force, and what has been changed.

use serde::{Deserialize, Serialize};

use crate::{Rules, Stat};

/// The answer to `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Of `scx_gleaner`.
    pub version: String,
    /// Whether interrupts between vCPUs are seen: not where KVM was loaded later.
    pub sees_kvm: bool,
    /// The options.
    pub options: InForce,
    /// The VMs that have run a vCPU since the start, and those with rules of their own, by process.
    pub vms: Vec<VmStatus>,
    /// What it has done.
    pub stats: Vec<Stat>,
}

/// Options that hold now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// Of VMs that have none of their own.
    pub rules: Rules,
    /// For how long the sender of a reschedule interrupt is not preempted, in ns.
    pub preemption_delay_ns: u64,
    /// For how long an urgent vCPU runs before the next one, in ns.
    pub urgent_slice_ns: u64,
    /// Time on a pCPU by which an urgent vCPU may be ahead of others, in ns.
    pub allowance_ns: u64,
    /// Where woken vCPUs go; fixed from the start.
    pub placement: String,
    /// Whether it matters who runs on the other threads of a core; fixed from the start.
    pub symbiosis: bool,
    /// Slice of whoever is not urgent, in ns; fixed from the start.
    pub slice_ns: u64,
}

/// A VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmStatus {
    /// Process of its VMM.
    pub pid: u32,
    /// Name of the process; empty if it has ended.
    pub name: String,
    /// vCPUs that have run since the start.
    pub vcpus: u32,
    /// Those of them that run or wait for a pCPU.
    pub active: u32,
    /// `cpu.weight` of its control group.
    pub weight: u32,
    /// The rules that hold for it.
    pub rules: Rules,
    /// Whether they are its own, not the default ones.
    pub own_rules: bool,
    /// What `resched-co-auto` decided last, as a sentence; empty where it is not a rule, or has decided nothing yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub decided: String,
}

/// One thing that `set` has changed, as texts. What was so already is not among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// What.
    pub what: String,
    /// The process of the VM whose rules they are, if it is one's.
    pub pid: Option<u32>,
    /// What held before.
    pub from: String,
    /// What holds now.
    pub to: String,
}
