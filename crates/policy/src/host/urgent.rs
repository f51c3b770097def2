//! Urgent vCPU first (§3.1.3 of the paper): a vCPU that must answer an interrupt, or has just sent one while it
//! holds a spinlock, runs before the others of its pCPU for a short while. It borrows that time from its own
//! future.

use serde::{Deserialize, Serialize};

/// Which interrupts make a vCPU urgent, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrgentConfig {
    /// Resched-DP: ns for which the sender of a reschedule interrupt is not preempted; 0 is off.
    pub resched_dp_ns: u64,
    /// TLB-Co: the receiver of a TLB shootdown runs first until it has acknowledged.
    pub tlb_co: bool,
    /// Resched-Co: ns for which the receiver of a reschedule interrupt runs first; 0 is off.
    pub resched_co_ns: u64,
    /// Ns for which an urgent vCPU runs before the next urgent one of the same pCPU.
    pub slice_ns: u64,
    /// Ns of virtual time by which an urgent vCPU may be ahead of the one that it preempts.
    pub allowance_ns: u64,
}

impl UrgentConfig {
    /// No vCPU is ever urgent.
    pub const OFF: Self = Self {
        resched_dp_ns: 0,
        tlb_co: false,
        resched_co_ns: 0,
        slice_ns: 500_000,
        allowance_ns: 18_000_000,
    };
    /// Resched-DP with TLB-Co, with the values of the paper's §4.1.1: 500 us, 500 us, 18 ms.
    pub const PAPER: Self = Self { resched_dp_ns: 500_000, tlb_co: true, ..Self::OFF };

    /// Whether an urgent vCPU may preempt: its virtual time is at most the allowance ahead of the current
    /// one's.
    pub fn may_preempt(&self, urgent_vruntime_ns: u64, current_vruntime_ns: u64) -> bool {
        urgent_vruntime_ns <= current_vruntime_ns.saturating_add(self.allowance_ns)
    }
}

/// Why a vCPU is urgent: unacknowledged interrupts, or a deadline that has not passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Urgency {
    events: u32,
    until_ns: u64,
}

impl Urgency {
    /// A time-based request: urgent for `ns` from `now_ns`.
    pub fn for_time(&mut self, now_ns: u64, ns: u64) {
        self.until_ns = self.until_ns.max(now_ns.saturating_add(ns));
    }

    /// An event-based request: urgent until it is acknowledged.
    pub fn for_event(&mut self) {
        self.events = self.events.saturating_add(1);
    }

    /// All events are acknowledged (the guest signalled the end of the interrupt).
    pub fn acknowledge(&mut self) {
        self.events = 0;
    }

    /// A pause-loop exit: the urgent vCPU spins itself, so its urgency ends (§4.3 of the paper).
    pub fn cancel(&mut self) {
        *self = Self::default();
    }

    /// Whether the vCPU is urgent at `now_ns`.
    pub fn is_urgent(&self, now_ns: u64) -> bool {
        self.events > 0 || now_ns < self.until_ns
    }

    /// Ns for which the vCPU must not be preempted. An event-based request protects it for at most `slice_ns`
    /// since it started to run at `ran_from_ns`.
    pub fn protected_for(&self, now_ns: u64, ran_from_ns: u64, slice_ns: u64) -> u64 {
        let slice_left = ran_from_ns.saturating_add(slice_ns).saturating_sub(now_ns);
        let time_left = self.until_ns.saturating_sub(now_ns);
        if self.events > 0 { slice_left.max(time_left.min(slice_ns)) } else { time_left.min(slice_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_based_urgency_ends_by_itself_and_event_based_by_acknowledgement() {
        let mut urgency = Urgency::default();
        urgency.for_time(100, 500);
        assert!(urgency.is_urgent(599) && !urgency.is_urgent(600));
        urgency.for_event();
        urgency.for_event();
        assert!(urgency.is_urgent(1_000_000));
        urgency.acknowledge();
        assert!(!urgency.is_urgent(1_000_000));
    }

    #[test]
    fn protection_is_bounded_by_the_slice() {
        let mut urgency = Urgency::default();
        assert_eq!(urgency.protected_for(0, 0, 500), 0);
        urgency.for_time(0, 10_000);
        assert_eq!(urgency.protected_for(100, 0, 500), 500);
        let mut event = Urgency::default();
        event.for_event();
        assert_eq!(event.protected_for(200, 0, 500), 300);
        assert_eq!(event.protected_for(600, 0, 500), 0, "its slice is over: the next urgent one");
    }

    #[test]
    fn the_allowance_bounds_how_far_ahead_an_urgent_vcpu_may_be() {
        let config = UrgentConfig::PAPER;
        assert!(config.may_preempt(18_000_000, 0));
        assert!(!config.may_preempt(18_000_001, 0));
    }
}
