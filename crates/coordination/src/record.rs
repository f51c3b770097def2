//! What `scx_gleaner` saw and decided, event by event, for a replay of its decisions by the simulator. A record is lines of JSON:
//! a [`Header`], and one [`Line`] for each event, in the order in which they happened; the last is [`What::End`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{UrgentConfig, VcpuPlacement};

/// [`Header::record`].
pub const RECORD: &str = "scx_gleaner";
/// Version of the format.
pub const VERSION: u32 = 5;
/// pCPUs that a record can have: there is a bit for each.
pub const MOST_PCPUS: u32 = 64;

/// How the host was scheduled. None of it changes while it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`RECORD`].
    pub record: String,
    /// [`VERSION`].
    pub version: u32,
    /// The host's kernel.
    pub kernel: String,
    /// The numbers of pCPUs are below this one.
    pub pcpus: u32,
    /// Those that are online, a bit for each.
    pub online: u64,
    /// The last-level cache of each pCPU below [`Self::pcpus`], as a number.
    pub llcs: Vec<u32>,
    /// The next thread of each pCPU's core, in a ring; empty where it does not matter who shares a core.
    pub threads: Vec<u32>,
    /// Slice of whoever is not urgent, in ns.
    pub slice_ns: u64,
    /// A pCPU looks for tasks that are behind on others so often at most, in ns.
    pub balance_ns: u64,
    /// A VM's active vCPUs are averaged over so long, in ns.
    pub average_ns: u64,
    /// A vCPU that halts within so long after it woke a sibling is about to halt when it wakes one, in ns.
    pub follow_ns: u64,
    /// Where woken vCPUs go.
    pub placement: VcpuPlacement,
    /// Rules of VMs that have none of their own.
    pub rules: UrgentConfig,
    /// Rules of VMs that have their own, by the process of the VMM.
    pub vms: BTreeMap<u32, UrgentConfig>,
}

impl Header {
    /// The rules of this VM; `None`: of what is no vCPU.
    pub fn rules_of(&self, vm: Option<u32>) -> &UrgentConfig {
        vm.and_then(|vm| self.vms.get(&vm)).unwrap_or(&self.rules)
    }
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The pCPU that it happened on.
    pub on: u32,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// A thread, as the kernel numbers it (`pid`).
pub type Task = i32;

/// What happened. Times are of the host's monotonic clock, in ns; `allowed` and `idle` have a bit for each pCPU. `burst`: the
/// expected CPU burst of the task, in ns; measured, not decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "what the fields hold is said above and with each event")]
pub enum What {
    /// The kernel hands a task to the scheduler.
    Enters { task: Task },
    /// The task is gone.
    Leaves { task: Task },
    /// The task is a vCPU of this VM.
    Vcpu { at: u64, task: Task, vm: u32, cpu: u32 },
    /// The task can run; `cpu` is where it was last.
    Runnable { at: u64, task: Task, cpu: u32 },
    /// It cannot any more, because it sleeps, or for a moment.
    Quiescent { at: u64, task: Task, sleeps: bool },
    /// The task, last on `last`, is woken by `waker` on `cpu`. `ours`: the placement rule is for it, else the kernel decides.
    Woken {
        at: u64,
        task: Task,
        waker: Task,
        cpu: u32,
        last: u32,
        allowed: u64,
        idle: u64,
        burst: u64,
        ours: bool,
    },
    /// The task is to wait for a pCPU in the order of virtual time. `weight`: its own.
    Queued { at: u64, task: Task, cpu: u32, weight: u32, allowed: u64, idle: u64, woken: bool },
    /// The task is next on its pCPU, whatever its virtual time: the kernel's own work there.
    Next { task: Task, cpu: u32 },
    /// A pCPU asks what to run. `running`: who runs, and could go on; 0: nobody.
    Asks { at: u64, cpu: u32, running: Task, burst: u64 },
    /// The task begins to run. `weight`: of its VM's control group if it is a vCPU, else its own; 100 is normal.
    Runs { at: u64, task: Task, cpu: u32, weight: u32, burst: u64 },
    /// It stops.
    Stops { at: u64, task: Task },
    /// A vCPU sent another one an interrupt. `halted`: that one was.
    Interrupt { at: u64, from: Task, to: Task, means: Means, halted: bool },
    /// What follows from a vCPU's interrupt holds by now; other pCPUs may have seen it since [`What::Interrupt`], or not.
    Sent { from: Task },
    /// KVM has delivered what a vCPU sent: the pCPU where it ran and a recipient waits is to decide anew.
    Delivered { from: Task },
    /// A vCPU acknowledged the shootdowns that it got.
    Acknowledges { task: Task },
    /// A vCPU halts, after it woke a sibling.
    Halts { at: u64, task: Task },
    /// A pause-loop exit of a vCPU.
    Spins { at: u64, task: Task },
    /// A vCPU wants to give its pCPU away for another one.
    Yields { at: u64, task: Task, to: Task },
    /// What was decided at an earlier event on this pCPU.
    Decides(Decision),
    /// The end of the record. `lost`: events that did not fit into the buffer.
    End { lost: u64 },
}

/// What an interrupt between vCPUs means to the guest's operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Means {
    /// A thread is to run there.
    Reschedule,
    /// A function is to be called there, such as to flush the TLB.
    Shootdown,
}

/// A decision of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "what the fields hold is said with each decision")]
pub enum Decision {
    /// Where a woken task goes. `idle`: that pCPU was, and is claimed for it.
    Placed { task: Task, cpu: u32, idle: bool },
    /// A pCPU has to decide anew at once. `idle`: it was.
    Kicked { cpu: u32, idle: bool },
    /// A woken task preempts who runs on its pCPU, without a decision of that one.
    Preempts { task: Task, cpu: u32 },
    /// The pCPU decides anew in so many ns.
    Timed { ns: u64 },
    /// What a pCPU does next.
    Chose { cpu: u32, choice: Choice },
    /// Whether a vCPU gives its pCPU away.
    Yielded { task: Task, gives: bool },
}

/// What a pCPU does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// Nothing.
    Idle,
    /// Who runs goes on: nobody that waits is before it.
    GoesOn,
    /// Who runs goes on, being protected from preemption.
    Protected,
    /// Who runs goes on, being the only urgent one.
    UrgentGoesOn,
    /// An urgent vCPU that waited here runs.
    Urgent,
    /// The first one that waited here runs.
    First,
    /// One that was behind on another pCPU runs.
    Pulled,
    /// One from another pCPU runs, because nobody waits here.
    Stolen,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_without_rules_of_its_own_has_the_default_ones() {
        let header = Header {
            record: RECORD.to_owned(),
            version: VERSION,
            kernel: String::new(),
            pcpus: 1,
            online: 1,
            llcs: vec![0],
            threads: Vec::new(),
            slice_ns: 0,
            balance_ns: 0,
            average_ns: 0,
            follow_ns: 0,
            placement: VcpuPlacement::Balance,
            rules: UrgentConfig::PAPER,
            vms: BTreeMap::from([(7, UrgentConfig::OFF)]),
        };
        assert_eq!(header.rules_of(Some(7)), &UrgentConfig::OFF);
        assert_eq!(header.rules_of(Some(8)), &UrgentConfig::PAPER);
        assert_eq!(header.rules_of(None), &UrgentConfig::PAPER);
    }
}
