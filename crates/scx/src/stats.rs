//! What the scheduler did.

use gleaner_trace::bpf::Summable;
use serde::Serialize;

use crate::skeleton::types;

/// Counts since the scheduler started, of all pCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Senders of reschedule interrupts that were protected from preemption.
    pub resched_dp: u64,
    /// Recipients of reschedule interrupts that became urgent.
    pub resched_co: u64,
    /// Recipients of TLB shootdowns that became urgent.
    pub tlb_co: u64,
    /// Urgent vCPUs that ran before the fair order.
    pub urgent_runs: u64,
    /// Urgent vCPUs that had to wait, being ahead by more than the allowance.
    pub over_allowance: u64,
    /// Preemptions that were delayed.
    pub protected: u64,
    /// Urgency that ended with a pause-loop exit.
    pub cancelled: u64,
    /// Tasks that an idle pCPU took from another one's queue.
    pub stolen: u64,
    /// Tasks taken from another pCPU's queue because they were behind.
    pub pulled: u64,
    /// Woken vCPUs put beside a sibling.
    pub stacked: u64,
    /// Interrupts whose recipient is not known: its thread has not run since the scheduler started.
    pub unknown_recipients: u64,
}

impl Stats {
    /// Each number with what it means, for people.
    pub fn named(&self) -> [(u64, &'static str); 11] {
        [
            (self.resched_dp, "senders protected"),
            (self.resched_co, "recipients coscheduled"),
            (self.tlb_co, "shootdowns coscheduled"),
            (self.urgent_runs, "urgent vCPUs run first"),
            (self.over_allowance, "urgent vCPUs over their allowance"),
            (self.protected, "preemptions delayed"),
            (self.cancelled, "urgency ended by spinning"),
            (self.stolen, "taken by idle pCPUs"),
            (self.pulled, "taken because they were behind"),
            (self.stacked, "put beside a sibling"),
            (self.unknown_recipients, "unknown recipients"),
        ]
    }
}

impl From<types::stats> for Stats {
    fn from(from: types::stats) -> Self {
        let types::stats {
            resched_dp,
            resched_co,
            tlb_co,
            urgent_runs,
            over_allowance,
            protected,
            cancelled,
            stolen,
            pulled,
            stacked,
            unknown_recipients,
        } = from;
        Self {
            resched_dp,
            resched_co,
            tlb_co,
            urgent_runs,
            over_allowance,
            protected,
            cancelled,
            stolen,
            pulled,
            stacked,
            unknown_recipients,
        }
    }
}

impl Summable for types::stats {
    fn accumulate(&mut self, more: &Self) {
        let Self {
            resched_dp,
            resched_co,
            tlb_co,
            urgent_runs,
            over_allowance,
            protected,
            cancelled,
            stolen,
            pulled,
            stacked,
            unknown_recipients,
        } = self;
        *resched_dp += more.resched_dp;
        *resched_co += more.resched_co;
        *tlb_co += more.tlb_co;
        *urgent_runs += more.urgent_runs;
        *over_allowance += more.over_allowance;
        *protected += more.protected;
        *cancelled += more.cancelled;
        *stolen += more.stolen;
        *pulled += more.pulled;
        *stacked += more.stacked;
        *unknown_recipients += more.unknown_recipients;
    }
}
