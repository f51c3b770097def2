//! Traces written event by event, and their replay.

#![allow(clippy::similar_names, reason = "waker and wakee are the words for them")]

use std::path::Path;

use gleaner_policy::{CpuId, CpuSet, PolicyConfig};
use gleaner_proto::trace_file::{Event, EventKind, Header, PrevState, Task, Writer};

use super::{Recorded, RecordedError, Replay};
use crate::{Costs, HostSpec, Ns, Spec, VmSpec, World};

const US: Ns = 1_000;
const A: Task = Task::Thread(0);
const B: Task = Task::Thread(1);

/// A trace of two vCPUs with these events, timed in microseconds.
fn trace(events: &[(u64, EventKind)]) -> Vec<u8> {
    let header = Header {
        unix_ms: 0,
        workload: "pair".to_owned(),
        vcpus: CpuSet::first(2),
        config: Box::new(PolicyConfig::default()),
        limits: Vec::new(),
    };
    let mut writer = Writer::new(Vec::new(), &header, 1 << 20).unwrap();
    let threads = ["a", "b"].into_iter().zip(1..).map(|(name, tid)| EventKind::Thread {
        tid,
        process: 1,
        name: name.to_owned(),
    });
    for what in threads {
        writer.event(&Event { at_ns: 0, what }).unwrap();
    }
    for (us, what) in events {
        writer.event(&Event { at_ns: us * US, what: what.clone() }).unwrap();
    }
    let elapsed_ns = events.last().map_or(0, |(us, _)| us * US);
    writer.finish(elapsed_ns).unwrap().0
}

fn switch(cpu: u32, from: Task, prev_state: PrevState, to: Task) -> EventKind {
    EventKind::Switch { cpu: CpuId(cpu), from, prev_state, to }
}

fn wake(cpu: u32, waker: Task, wakee: Task) -> EventKind {
    EventKind::Wake { cpu: CpuId(cpu), waker, wakee }
}

fn parse(events: &[(u64, EventKind)]) -> Recorded {
    Recorded::parse(Path::new("t"), &trace(events)).unwrap()
}

/// `a` computes for 500 us, wakes `b`, which computes for 300 us and wakes `a`, which computes for 200 us.
fn hand_offs() -> Vec<(u64, EventKind)> {
    vec![
        (0, switch(0, Task::Nobody, PrevState::Runnable, A)),
        (500, wake(0, A, B)),
        (510, switch(0, A, PrevState::Blocked, Task::Nobody)),
        (530, switch(1, Task::Nobody, PrevState::Runnable, B)),
        (830, wake(1, B, A)),
        (860, switch(0, Task::Nobody, PrevState::Runnable, A)),
        (870, switch(1, B, PrevState::Exited, Task::Nobody)),
        (1060, switch(0, A, PrevState::Exited, Task::Nobody)),
    ]
}

/// Run time on two vCPUs, in microseconds, and hand-offs.
fn run(recorded: &Recorded, replay: Replay) -> (f64, u64) {
    let vm = VmSpec::new("vm", 2, recorded.costs()).running(recorded.program(replay));
    let mut world = World::new(&Spec::new(HostSpec::default(), vec![vm])).unwrap();
    world.run();
    let report = world.report();
    let totals = report.vms[0].tasks[0].totals;
    (totals.finished.unwrap() as f64 / 1e3, totals.operations)
}

#[test]
fn a_wait_ends_when_its_recorded_waker_comes_to_that_point() {
    let recorded = parse(&hand_offs());
    // `b` waits from the start; later `a` waits for `b`.
    assert_eq!((recorded.hand_offs, recorded.timed, recorded.threads()), (2, 0, 2));
    let (us, hand_offs) = run(&recorded, Replay::default());
    assert_eq!(hand_offs, 2);
    assert!((us / 1060.0 - 1.0).abs() < 0.1, "{us}");
    // Repetitions stay in step.
    let (ten, hand_offs) = run(&recorded, Replay { times: 10, vary: 0.0 });
    assert_eq!(hand_offs, 20);
    assert!((ten / us - 10.0).abs() < 0.5, "{ten} {us}");
    let (varied, _) = run(&recorded, Replay { times: 10, vary: 0.2 });
    assert!((1e-6..0.2).contains(&(varied / ten - 1.0).abs()), "{varied} {ten}");
}

#[test]
fn the_kernels_share_is_taken_out_once() {
    let recorded = parse(&hand_offs());
    let costs = recorded.costs();
    // 500 + 10 + 200 of `a` and 300 + 40 of `b`, minus two waits, two wake-ups and two interrupts.
    let whole = (510 + 200 + 340) * US;
    let share = whole - recorded.computation();
    let each = costs.futex_wait + 2 * costs.futex_return + costs.futex_wake;
    assert!(share > each && share <= 2 * (each + costs.ipi_send_delay + costs.ipi_send_rest), "{share}");
}

#[test]
fn other_waits_last_as_long_as_recorded() {
    let events = [
        (0, switch(0, Task::Nobody, PrevState::Runnable, A)),
        (100, switch(0, A, PrevState::Blocked, Task::Nobody)),
        // A timer, a device, and a client outside the workload.
        (1100, wake(0, Task::Nobody, A)),
        (1110, switch(0, Task::Nobody, PrevState::Runnable, A)),
        (1200, switch(0, A, PrevState::BlockedIo, Task::Nobody)),
        (1700, wake(0, Task::Nobody, A)),
        (1705, switch(0, Task::Nobody, PrevState::Runnable, A)),
        (1800, switch(0, A, PrevState::Blocked, Task::Nobody)),
        (2000, wake(1, Task::Other, A)),
        (2005, switch(0, Task::Nobody, PrevState::Runnable, A)),
        (2100, switch(0, A, PrevState::Exited, Task::Nobody)),
    ];
    let recorded = parse(&events);
    assert_eq!((recorded.hand_offs, recorded.timed), (0, 3));
    let (us, _) = run(&recorded, Replay::default());
    assert!((us / 2100.0 - 1.0).abs() < 0.05, "{us}");
}

#[test]
fn a_wake_up_while_leaving_ends_that_wait_and_one_in_vain_ends_none() {
    let events = [
        (0, switch(0, Task::Nobody, PrevState::Runnable, A)),
        (0, switch(1, Task::Nobody, PrevState::Runnable, B)),
        // In vain: `b` continues, and only waits for the next one.
        (50, wake(0, A, B)),
        (99, wake(0, A, B)),
        (100, switch(1, B, PrevState::Blocked, Task::Nobody)),
        (101, switch(1, Task::Nobody, PrevState::Runnable, B)),
        (300, switch(1, B, PrevState::Exited, Task::Nobody)),
        (400, switch(0, A, PrevState::Exited, Task::Nobody)),
    ];
    let recorded = parse(&events);
    assert_eq!(recorded.hand_offs, 1);
    let (us, hand_offs) = run(&recorded, Replay::default());
    assert_eq!(hand_offs, 1);
    assert!((380.0..420.0).contains(&us), "{us}");
}

#[test]
fn damaged_and_foreign_files_are_distinguished() {
    let sound = trace(&hand_offs());
    let parse = |bytes: &[u8]| Recorded::parse(Path::new("t"), bytes).unwrap_err();
    let mut other = sound.clone();
    other[8] = 9;
    assert!(matches!(parse(b"{}"), RecordedError::File { .. }));
    assert!(parse(&other).to_string().contains("t: this trace has version 9"), "{}", parse(&other));
    for cut in [sound.len() - 1, sound.len() - 40] {
        let error = parse(&sound[..cut]);
        assert!(matches!(error, RecordedError::Damaged { .. }), "{error}");
        assert!(error.to_string().starts_with("t: at byte "), "{error}");
    }
    let idle = trace(&[(5, switch(0, Task::Other, PrevState::Runnable, Task::Nobody))]);
    assert!(matches!(parse(&idle), RecordedError::Empty { .. }));
    assert!(matches!(Recorded::read(Path::new("/no/trace")), Err(RecordedError::Read { .. })));
}

#[test]
fn the_machines_costs_are_those_of_the_header() {
    let wake = |costs: Costs| costs.wake()[2];
    let recorded = parse(&hand_offs());
    let config = PolicyConfig::default();
    let waited = config.wake_cost.saturating_sub(config.waker_cost).as_nanos() as f64;
    assert!((wake(recorded.costs()) as f64 / waited - 1.0).abs() < 0.05, "{}", wake(recorded.costs()));
}
