//! The state machine on any stream of events, and the same in BPF.

use std::mem::MaybeUninit;

use gleaner_trace::bpf::{as_bytes, from_bytes};
use libbpf_rs::skel::SkelBuilder as _;
use libbpf_rs::{MapCore as _, MapFlags, ProgramInput};
use proptest::prelude::*;

use crate::Reason;
use crate::attribution::{Attribution, Event, Next};
use crate::replay_skeleton::ReplaySkelBuilder;
use crate::replay_skeleton::types::{event, event_kind, exit_reason, replay, vcpu};

use Event::{Entry, Exit, FellAsleep, Preempted, Refine, Resumed, SwitchedIn, ToVmm, Waking};

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let reason = (0..Reason::ALL.len()).prop_map(|number| Reason::ALL[number]);
    let event = prop_oneof![
        reason.clone().prop_map(Exit),
        Just(Entry),
        reason.prop_map(Refine),
        Just(Preempted),
        Just(FellAsleep),
        Just(SwitchedIn),
        Just(Waking),
        Just(ToVmm),
        prop_oneof![Just(Next::Exit), Just(Next::SwitchedIn), Just(Next::Other)].prop_map(Resumed),
    ];
    // Steps on both sides of the time that it takes to leave a pCPU.
    let step = prop_oneof![0..3_u64, 1000..300_000_u64];
    prop::collection::vec((step, event), 0..60).prop_map(|steps| {
        let mut now = 1;
        let after = |(step, event)| {
            now += step;
            (now, event)
        };
        steps.into_iter().map(after).collect()
    })
}

proptest! {
    #[test]
    fn any_stream_adds_up(events in events()) {
        let mut of = Attribution::new(1);
        for (now, event) in &events {
            of.apply(*event, *now);
        }
        let end = events.last().map_or(1, |last| last.0);
        of.account(end);
        prop_assert_eq!(of.total_ns(), end - 1);
    }
}

fn as_event((ns, of): &(u64, Event)) -> event {
    // The kind of the next event is where others have their reason.
    let resumed = |next: event_kind| (event_kind::EVENT_RESUMED, Reason::from_number(next.0));
    let (kind, reason) = match of {
        Exit(reason) => (event_kind::EVENT_EXIT, *reason),
        Entry => (event_kind::EVENT_ENTRY, Reason::Unknown),
        Refine(reason) => (event_kind::EVENT_REFINE, *reason),
        Preempted => (event_kind::EVENT_OUT_RUNNABLE, Reason::Unknown),
        FellAsleep => (event_kind::EVENT_OUT_ASLEEP, Reason::Unknown),
        SwitchedIn => (event_kind::EVENT_IN, Reason::Unknown),
        Waking => (event_kind::EVENT_WAKING, Reason::Unknown),
        ToVmm => (event_kind::EVENT_TO_VMM, Reason::Unknown),
        Resumed(Next::Exit) => resumed(event_kind::EVENT_EXIT),
        Resumed(Next::SwitchedIn) => resumed(event_kind::EVENT_IN),
        Resumed(Next::Other) => resumed(event_kind::EVENT_ENTRY),
    };
    event { ns: *ns, kind, reason: exit_reason(reason as u32) }
}

/// Runs `check` with a function that feeds the BPF programs with events.
fn with_bpf(check: impl FnOnce(&dyn Fn(&[(u64, Event)]) -> vcpu)) {
    if !gleaner_testing::is_root() {
        return;
    }
    libbpf_rs::set_print(None);
    let mut place = MaybeUninit::uninit();
    let skel = match ReplaySkelBuilder::default().open(&mut place).and_then(libbpf_rs::skel::OpenSkel::load) {
        Ok(skel) => skel,
        Err(error) => return gleaner_testing::skipped(format!("cannot load BPF programs: {error}")),
    };
    let zero = 0_u32.to_ne_bytes();
    check(&|events: &[(u64, Event)]| {
        let mut list = replay { count: events.len() as u64, ..replay::default() };
        for (entry, event) in list.events.iter_mut().zip(events) {
            *entry = as_event(event);
        }
        let empty = vcpu { first_ns: 1, since_ns: 1, ..vcpu::default() };
        skel.maps.machine.update(&zero, as_bytes(&empty), MapFlags::ANY).unwrap();
        skel.maps.events.update(&zero, as_bytes(&list), MapFlags::ANY).unwrap();
        let ran = skel.progs.replay.test_run(ProgramInput::default()).unwrap();
        assert_eq!(ran.return_value, 0);
        let bytes = skel.maps.machine.lookup(&zero, MapFlags::ANY).unwrap().unwrap();
        from_bytes::<vcpu>(&bytes).unwrap()
    });
}

#[test]
fn the_bpf_programs_attribute_alike() {
    with_bpf(|bpf| {
        proptest!(ProptestConfig::with_cases(500), |(events in events())| {
            let mut ours = Attribution::new(1);
            for (now, event) in &events {
                ours.apply(*event, *now);
            }
            let theirs = bpf(&events);
            prop_assert_eq!(theirs.since_ns, ours.since_ns);
            prop_assert_eq!(theirs.reason.0, ours.reason as u32);
            prop_assert_eq!(theirs.unknown_ns, ours.unknown_ns);
            prop_assert_eq!(theirs.guest_ns, ours.guest_ns);
            prop_assert_eq!(theirs.unpaired, ours.unpaired);
            prop_assert_eq!(theirs.disordered, ours.disordered);
            for (theirs, ours) in theirs.reasons.iter().zip(&ours.reasons) {
                prop_assert_eq!(theirs.count, ours.count);
                prop_assert_eq!(theirs.run_ns, ours.run_ns);
                prop_assert_eq!(theirs.sleep_ns, ours.sleep_ns);
                prop_assert_eq!(theirs.woken_ns, ours.woken_ns);
                prop_assert_eq!(theirs.preempted_ns, ours.preempted_ns);
                prop_assert_eq!(theirs.to_vmm, ours.to_vmm);
            }
        });
    });
}

#[test]
fn a_halt_ends_with_the_last_wake_up_that_was_seen() {
    let halted = [(10, Entry), (20, Exit(Reason::Hlt)), (30, FellAsleep)];
    let ended = [(900_000, Waking), (900_010, SwitchedIn)];
    let cases = [
        ("a wake-up", [&halted[..], &ended].concat(), 900_000),
        (
            "one while it left its pCPU",
            [&halted[..2], &[(25, Waking)], &halted[2..], &ended[1..]].concat(),
            25,
        ),
        (
            "two sleeps",
            [&halted[..], &[(50, Waking), (60, SwitchedIn), (70, FellAsleep)], &ended].concat(),
            900_000,
        ),
        (
            "preempted after it",
            [&halted[..], &ended, &[(900_020, Preempted), (950_000, SwitchedIn)]].concat(),
            900_000,
        ),
        ("none seen", [&halted[..], &ended[1..]].concat(), 0),
        (
            "polled, and preempted meanwhile",
            vec![(20, Exit(Reason::Hlt)), (30, Preempted), (90, SwitchedIn)],
            0,
        ),
        ("asleep for the VMM", [&[(20, Exit(Reason::Pio)), (30, FellAsleep)], &ended[..]].concat(), 0),
        (
            "another exit after it",
            [&halted[..], &ended, &[(900_020, Entry), (900_030, Exit(Reason::Hlt))]].concat(),
            0,
        ),
        (
            "woken in a pause",
            [&halted[..], &[(800_000, Resumed(Next::SwitchedIn)), (800_010, SwitchedIn)]].concat(),
            0,
        ),
    ];
    with_bpf(|bpf| {
        for (what, events, woken_ns) in &cases {
            assert_eq!(bpf(events).halt_woken_ns, *woken_ns, "{what}");
        }
    });
}
