//! Urgent vCPU first (§3.1.3 of the paper): a vCPU that must answer an interrupt, or has just sent one while it holds a
//! spinlock, runs before the others of its pCPU for a short while. It borrows that time from its own future.

use serde::{Deserialize, Serialize};

use crate::native;
use crate::shares;

/// Which interrupts make a vCPU urgent, and for how long. `struct urgent_rules`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrgentConfig {
    /// Resched-DP: ns for which the sender of a reschedule interrupt is not preempted; 0 is off.
    pub resched_dp_ns: u64,
    /// Resched-Co: ns for which the receiver of a reschedule interrupt runs first; 0 is off.
    pub resched_co_ns: u64,
    /// Ns for which an urgent vCPU runs before the next urgent one of the same pCPU.
    pub slice_ns: u64,
    /// Ns of time on a pCPU by which an urgent vCPU may be ahead of the one that it preempts.
    pub allowance_ns: u64,
    /// TLB-Co: the receiver of a TLB shootdown runs first until it has acknowledged.
    pub tlb_co: bool,
    /// Whether a vCPU that waits for answers to its shootdown keeps its pCPU at a pause-loop exit (proposed in §4.3).
    pub tlb_wait: bool,
}

impl UrgentConfig {
    /// No vCPU is ever urgent.
    pub const OFF: Self = Self {
        resched_dp_ns: 0,
        resched_co_ns: 0,
        slice_ns: 500_000,
        allowance_ns: 18_000_000,
        tlb_co: false,
        tlb_wait: false,
    };
    /// Resched-DP with TLB-Co, with the values of the paper's §4.1.1: 500 us, 500 us, 18 ms.
    pub const PAPER: Self = Self { resched_dp_ns: 500_000, tlb_co: true, ..Self::OFF };

    /// Whether an urgent vCPU with this share may preempt: its virtual time is at most the allowance, which is time of its own
    /// on a pCPU, ahead of the current one's. A share of 0 counts as [`NORMAL_SHARE`](crate::NORMAL_SHARE).
    pub fn may_preempt(&self, share: u64, urgent_vruntime_ns: u64, current_vruntime_ns: u64) -> bool {
        shares::urgent_may_preempt(self, share, urgent_vruntime_ns, current_vruntime_ns)
    }
}

/// Why a vCPU is urgent: unacknowledged interrupts, or a deadline that has not passed. `struct urgency`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Urgency {
    until_ns: u64,
    once_it_runs_ns: u64,
    events: u32,
    awaited: u32,
}

impl Urgency {
    /// A time-based request: urgent for `ns` from `now_ns`; 0 requests nothing.
    pub fn for_time(&mut self, now_ns: u64, ns: u64) {
        native::urgency_for_time(self, now_ns, ns);
    }

    /// A time-based request of a vCPU that waits for a pCPU: urgent until `ns` after it starts to run.
    pub fn once_it_runs(&mut self, ns: u64) {
        native::urgency_once_it_runs(self, ns);
    }

    /// The vCPU runs from `now_ns` on.
    pub fn runs(&mut self, now_ns: u64) {
        native::urgency_runs(self, now_ns);
    }

    /// An event-based request: urgent until it is acknowledged.
    pub fn for_event(&mut self) {
        native::urgency_for_event(self);
    }

    /// All events are acknowledged: the guest signalled the end of the interrupt.
    pub fn acknowledge(&mut self) {
        native::urgency_acknowledge(self);
    }

    /// The vCPU sleeps: there is nothing left that it could be urgent for.
    pub fn end(&mut self) {
        native::urgency_end(self);
    }

    /// The vCPU sent a shootdown to `recipients` others, for which it will wait.
    pub fn awaits(&mut self, recipients: u32) {
        native::urgency_awaits(self, recipients);
    }

    /// One of those acknowledged.
    pub fn answered(&mut self) {
        native::urgency_answered(self);
    }

    /// A pause-loop exit ends urgency, since the vCPU spins itself (§4.3 of the paper). Returns whether it should give
    /// the pCPU away: with `tlb_wait` not while it waits for answers to a shootdown.
    pub fn spins(&mut self, rules: &UrgentConfig) -> bool {
        native::urgency_spins(self, rules)
    }

    /// Whether the vCPU is urgent at `now_ns`.
    pub fn is_urgent(&self, now_ns: u64) -> bool {
        native::urgency_holds(self, now_ns)
    }

    /// Ns for which the running vCPU must not be preempted. An event-based request protects it for one slice since it
    /// started to run at `ran_from_ns`.
    pub fn protected_for(&self, now_ns: u64, ran_from_ns: u64, slice_ns: u64) -> u64 {
        native::urgency_protects_for(self, now_ns, ran_from_ns, slice_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::NORMAL_SHARE;

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
    fn the_time_of_one_that_waits_begins_when_it_runs() {
        let mut urgency = Urgency::default();
        urgency.once_it_runs(500);
        assert!(urgency.is_urgent(1_000_000));
        urgency.runs(1_000_000);
        assert!(urgency.is_urgent(1_000_499) && !urgency.is_urgent(1_000_500));
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
        assert!(config.may_preempt(NORMAL_SHARE, 18_000_000, 0));
        assert!(!config.may_preempt(NORMAL_SHARE, 18_000_001, 0));
        // A fourth of a VM: its virtual time advances four times as fast.
        assert!(config.may_preempt(NORMAL_SHARE / 4, 72_000_000, 0));
        assert!(!config.may_preempt(NORMAL_SHARE / 4, 72_000_001, 0));
    }

    #[test]
    fn a_spinning_vcpu_is_not_urgent_and_yields_unless_its_shootdown_is_answered_first() {
        let mut urgency = Urgency::default();
        urgency.for_time(0, 500);
        urgency.for_event();
        assert!(urgency.spins(&UrgentConfig::PAPER));
        assert!(!urgency.is_urgent(1));

        urgency.awaits(2);
        urgency.for_time(0, 500);
        let waits = UrgentConfig { tlb_wait: true, ..UrgentConfig::PAPER };
        assert!(!urgency.spins(&waits), "the others run first, so they answer soon");
        assert!(urgency.is_urgent(1));
        assert!(urgency.spins(&UrgentConfig { tlb_co: false, ..waits }), "nobody runs first");
        urgency.answered();
        urgency.answered();
        urgency.answered();
        assert!(urgency.spins(&waits));
    }

    #[derive(Debug, Clone)]
    enum Request {
        Time(u64, u64),
        OnceItRuns(u64),
        Runs(u64),
        Event,
        Acknowledge,
        Awaits(u32),
        Answered,
        Spins,
        End,
    }

    fn requests() -> impl Strategy<Value = Vec<Request>> {
        let one = prop_oneof![
            (any::<u64>(), any::<u64>()).prop_map(|(now, ns)| Request::Time(now, ns)),
            any::<u64>().prop_map(Request::OnceItRuns),
            any::<u64>().prop_map(Request::Runs),
            Just(Request::Event),
            Just(Request::Acknowledge),
            any::<u32>().prop_map(Request::Awaits),
            Just(Request::Answered),
            Just(Request::Spins),
            Just(Request::End),
        ];
        prop::collection::vec(one, 0..40)
    }

    proptest! {
        /// The rules by another text: a list of all open requests.
        #[test]
        fn urgency_is_an_open_request(requests in requests(), tlb_co: bool, tlb_wait: bool, now: u64, ran_from: u64, slice: u64) {
            let rules = UrgentConfig { tlb_co, tlb_wait, ..UrgentConfig::PAPER };
            let mut urgency = Urgency::default();
            let (mut times, mut events, mut awaited) = (Vec::new(), 0_u32, 0_u32);
            let mut waiting = Vec::new();
            for request in requests {
                match request {
                    Request::Time(at, ns) => {
                        urgency.for_time(at, ns);
                        if ns > 0 {
                            times.push(at.saturating_add(ns));
                        }
                    }
                    Request::OnceItRuns(ns) => {
                        urgency.once_it_runs(ns);
                        waiting.push(ns);
                    }
                    Request::Runs(at) => {
                        urgency.runs(at);
                        times.extend(waiting.drain(..).filter(|ns| *ns > 0).map(|ns| at.saturating_add(ns)));
                    }
                    Request::Event => {
                        urgency.for_event();
                        events += 1;
                    }
                    Request::Acknowledge => {
                        urgency.acknowledge();
                        events = 0;
                    }
                    Request::Awaits(recipients) => {
                        urgency.awaits(recipients);
                        awaited = awaited.saturating_add(recipients);
                    }
                    Request::Answered => {
                        urgency.answered();
                        awaited = awaited.saturating_sub(1);
                    }
                    Request::Spins => {
                        let waits = tlb_co && tlb_wait && awaited > 0;
                        prop_assert_eq!(urgency.spins(&rules), !waits);
                        if !waits {
                            times.clear();
                            waiting.clear();
                            events = 0;
                        }
                    }
                    Request::End => {
                        urgency.end();
                        (times, events, awaited) = (Vec::new(), 0, 0);
                        waiting.clear();
                    }
                }
            }
            let left = times.iter().map(|until| until.saturating_sub(now)).max().unwrap_or(0);
            let will = waiting.iter().any(|ns| *ns > 0);
            prop_assert_eq!(urgency.is_urgent(now), events > 0 || left > 0 || will);
            let of_slice = if events > 0 { ran_from.saturating_add(slice).saturating_sub(now) } else { 0 };
            prop_assert_eq!(urgency.protected_for(now, ran_from, slice), of_slice.max(left.min(slice)));
        }

        #[test]
        fn the_allowance_is_a_difference(allowance_ns in 0..u64::MAX / NORMAL_SHARE, urgent: u64, other: u64) {
            let rules = UrgentConfig { allowance_ns, ..UrgentConfig::PAPER };
            prop_assert_eq!(rules.may_preempt(NORMAL_SHARE, urgent, other), urgent.saturating_sub(other) <= allowance_ns);
        }

        #[test]
        fn the_allowance_is_time_of_its_own_whatever_the_share(
            allowance_ns in 1_000_u64..100_000_000,
            share in 1..=100 * NORMAL_SHARE,
            other in 0..u64::MAX / 2,
            ran_of_1000 in 0_u64..2_000,
        ) {
            let rules = UrgentConfig { allowance_ns, ..UrgentConfig::PAPER };
            // What it has run more than the other one, and by how much that advanced its virtual time.
            let ran = allowance_ns * ran_of_1000 / 1000;
            let urgent = other + ran * NORMAL_SHARE / share;
            prop_assert!(rules.may_preempt(share, urgent, other) || ran > allowance_ns);
            // A remainder of virtual time is at most this much of its own.
            let remainder = share.div_ceil(NORMAL_SHARE);
            prop_assert!(!rules.may_preempt(share, urgent, other) || ran <= allowance_ns + remainder);
        }
    }
}
