//! What is counted of a vCPU.

use serde::Serialize;

/// Event counts of one vCPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct VcpuCounts {
    /// Idle periods that ended in a halt.
    pub halts: u64,
    /// Idle periods that started with retention.
    pub polls: u64,
    /// Those of `polls` that ended before the vCPU halted.
    pub polls_won: u64,
    /// Number of idle periods.
    pub idle_periods: u64,
    /// Reschedule interrupts received.
    pub resched_ipis: u64,
    /// TLB shootdown interrupts received.
    pub flush_ipis: u64,
    /// Preemptions by the host.
    pub preempted: u64,
    /// Preemptions while holding a wait queue's spinlock.
    pub lock_holder_preempted: u64,
    /// Those of a thread that was about to wait (`futex_wait`); the others were waking somebody.
    pub waiting_holder_preempted: u64,
    /// Those of a thread whose reschedule interrupt had not left yet.
    pub sending_holder_preempted: u64,
    /// How often it spun for a wait queue's spinlock and got it.
    pub lock_waits: u64,
    /// How long that took in total, preemptions included, in ns.
    pub lock_wait_ns: u64,
    /// How often it acknowledged TLB shootdowns, several at once if they came before it could.
    pub flush_answers: u64,
    /// How long the first of them had waited for that, in ns.
    pub flush_answer_ns: u64,
    /// Waits of its threads at barriers of a mutex and a condition, for all to arrive.
    pub arrival_waits: u64,
    /// Those for all threads to leave the previous phase.
    pub departure_waits: u64,
    /// Those of both for which the thread slept.
    pub blocked_waits: u64,
    /// Pause-loop exits.
    pub pause_exits: u64,
    /// Halts for which the hypervisor polled successfully.
    pub host_polls_won: u64,
    /// Halts for which the hypervisor polled in vain.
    pub host_polls_lost: u64,
}
