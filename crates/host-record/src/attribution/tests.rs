//! The state machine on streams of events. `gleaner_host` has it on any stream, beside the same in BPF.

use super::*;

use Event::{Entry, Exit, FellAsleep, Preempted, Refine, SwitchedIn, ToVmm, Waking};

/// From events with their times in us.
fn after(events: &[(u64, Event)]) -> Attribution {
    let mut attribution = Attribution::new(0);
    for (us, event) in events {
        attribution.apply(*event, us * 1000);
    }
    attribution
}

/// Parts in us: guest, then run, sleep, woken and preempted after `reason`.
fn parts(of: &Attribution, reason: Reason) -> [u64; 5] {
    let sum = of.reasons[reason as usize];
    [of.guest_ns, sum.run_ns, sum.sleep_ns, sum.woken_ns, sum.preempted_ns].map(|ns| ns / 1000)
}

#[test]
fn a_halt_is_hypervisor_halted_and_waiting() {
    // As a recorded ping-pong has it: HLT, 3 us until the thread sleeps, 40 us halted, 5 us until it runs, 2 us to enter.
    let of = after(&[
        (0, Entry),
        (10, Exit(Reason::Hlt)),
        (13, FellAsleep),
        (53, Waking),
        (58, SwitchedIn),
        (60, Entry),
        (70, Exit(Reason::Ipi)),
    ]);
    assert_eq!(parts(&of, Reason::Hlt), [20, 5, 40, 5, 0]);
    assert_eq!((of.unknown_ns, of.total_ns(), of.disordered, of.unpaired), (0, 70_000, 0, 0));
}

#[test]
fn preemption_waits_under_the_reason_that_led_to_it() {
    // The host's tick: an exit for the interrupt, another thread for 3 ms, on another pCPU.
    let of = after(&[
        (0, Entry),
        (1000, Exit(Reason::Interrupt)),
        (1004, Preempted),
        (4004, SwitchedIn),
        (4006, Entry),
    ]);
    assert_eq!(parts(&of, Reason::Interrupt), [1000, 6, 0, 0, 3000]);
    assert_eq!(of.total_ns(), 4_006_000);
}

#[test]
fn a_waker_that_calls_while_the_thread_leaves_is_seen() {
    let of = after(&[(0, Exit(Reason::Hlt)), (9, Waking), (10, FellAsleep), (30, SwitchedIn)]);
    assert_eq!(parts(&of, Reason::Hlt), [0, 10, 0, 20, 0]);
    // A call long before belongs to an earlier sleep.
    let of = after(&[(0, Exit(Reason::Hlt)), (9, Waking), (300, FellAsleep), (330, SwitchedIn)]);
    assert_eq!(parts(&of, Reason::Hlt), [0, 300, 30, 0, 0]);
    // A later call ends the sleep, whatever came before it.
    let of = after(&[(0, Exit(Reason::Hlt)), (9, Waking), (10, FellAsleep), (25, Waking), (30, SwitchedIn)]);
    assert_eq!(parts(&of, Reason::Hlt), [0, 10, 15, 5, 0]);
}

#[test]
fn a_wait_that_is_still_going_on_counts() {
    let mut of = after(&[(0, Exit(Reason::Hlt)), (1, FellAsleep), (50, Waking)]);
    of.account(80_000);
    assert_eq!(parts(&of, Reason::Hlt), [0, 1, 49, 30, 0]);
    // Continuing where the reading left off counts nothing twice.
    of.apply(SwitchedIn, 90_000);
    assert_eq!(of.total_ns(), 90_000);
}

#[test]
fn what_becomes_known_later_takes_all_of_the_exits_time() {
    let of = after(&[(0, Entry), (5, Exit(Reason::Ept)), (7, Refine(Reason::Mmio)), (8, ToVmm), (9, Entry)]);
    assert_eq!(of.reasons[Reason::Ept as usize], ReasonTimes::default());
    let mmio = of.reasons[Reason::Mmio as usize];
    assert_eq!((mmio.count, mmio.run_ns, mmio.to_vmm), (1, 4000, 1));
    // In the guest there is nothing to refine.
    assert_eq!(after(&[(0, Entry), (5, Refine(Reason::Mmio))]).reasons[Reason::Mmio as usize].count, 0);
}

#[test]
fn lost_events_move_time_and_lose_none() {
    // The entry after the first exit is lost: the time until the next exit is the guest's.
    let of =
        after(&[(0, Exit(Reason::TscDeadline)), (20, Exit(Reason::Hlt)), (21, FellAsleep), (30, SwitchedIn)]);
    assert_eq!((of.guest_ns, of.unpaired, of.total_ns()), (20_000, 1, 30_000));
    // The switch away is lost.
    let of = after(&[(0, Entry), (5, Exit(Reason::Hlt)), (60, SwitchedIn), (61, Entry)]);
    assert_eq!((of.disordered, of.total_ns()), (1, 61_000));
    // The switch back is lost.
    let of = after(&[(0, Exit(Reason::Hlt)), (5, FellAsleep), (50, Entry), (51, Exit(Reason::Hlt))]);
    assert_eq!((of.disordered, of.total_ns()), (1, 51_000));
}

#[test]
fn events_out_of_order_count_no_time_twice() {
    let of = after(&[(0, Entry), (10, Exit(Reason::Hlt)), (8, FellAsleep), (20, SwitchedIn)]);
    assert_eq!(of.total_ns(), 20_000);
}

#[test]
fn times_add_up_and_halts_are_apart_from_other_sleep() {
    let of = after(&[
        (0, Entry),
        (10, Exit(Reason::Hlt)),
        (11, FellAsleep),
        (20, SwitchedIn),
        (21, Entry),
        (30, Exit(Reason::Pio)),
        (31, FellAsleep),
        (40, SwitchedIn),
    ]);
    let reasons: Vec<(Reason, ReasonTimes)> =
        (0..).map(Reason::from_number).zip(of.reasons.iter().copied()).collect();
    let times = Times::of(of.unknown_ns, of.guest_ns, reasons.iter().map(|(reason, sum)| (reason, sum)));
    assert_eq!((times.halted_ns, times.blocked_ns), (9000, 9000));
    assert_eq!((times.total_ns(), times.wanted_ns()), (40_000, 31_000));
}
