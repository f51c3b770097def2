//! Small hosts of which every decision is known.

use std::collections::BTreeMap;

use gleaner_coordination::record::{Choice, Decision, Header, Means, RECORD, Task, VERSION, What};
use gleaner_coordination::{UrgentConfig, VcpuPlacement};

use super::host::Host;

const MS: u64 = 1_000_000;
const SLICE: u64 = 3 * MS;
/// Bursts, in ns.
const WAITS: u64 = 20_000;
const COMPUTES: u64 = 5 * MS;
/// All rules, with the paper's times.
const ALL: UrgentConfig = UrgentConfig { resched_co_ns: 500_000, ..UrgentConfig::PAPER };

fn host(pcpus: u32, rules: UrgentConfig) -> Host {
    Host::new(Header {
        record: RECORD.to_owned(),
        version: VERSION,
        kernel: String::new(),
        pcpus,
        online: (1 << pcpus) - 1,
        llcs: vec![0; pcpus as usize],
        threads: Vec::new(),
        slice_ns: SLICE,
        balance_ns: 10 * MS,
        average_ns: 10 * MS,
        follow_ns: 50_000,
        placement: VcpuPlacement::LoadConscious,
        rules,
        vms: BTreeMap::new(),
    })
}

/// vCPUs of one VM each, by number; `vm` 1 has 11, 12 and so on.
fn vcpu(host: &mut Host, task: Task, cpu: u32) {
    host.happens(&What::Vcpu { at: 0, task, vm: task.cast_unsigned() / 10, cpu });
}

fn queue(host: &mut Host, at: u64, task: Task, cpu: u32, woken: bool) -> Vec<Decision> {
    host.happens(&What::Queued { at, task, cpu, weight: 100, allowed: u64::MAX, idle: 0, woken })
}

fn run(host: &mut Host, at: u64, task: Task, cpu: u32, weight: u32) {
    assert_eq!(host.happens(&What::Runs { at, task, cpu, weight, burst: WAITS }), []);
}

/// The task that ran stops and waits again.
fn preempt(host: &mut Host, at: u64, task: Task, cpu: u32) {
    host.happens(&What::Stops { at, task });
    queue(host, at, task, cpu, false);
}

fn asks(host: &mut Host, at: u64, running: Task) -> Vec<Decision> {
    host.happens(&What::Asks { at, cpu: 0, running, burst: 0 })
}

fn chose(choice: Choice) -> Decision {
    Decision::Chose { cpu: 0, choice }
}

#[test]
fn vms_take_turns_by_their_weight() {
    let mut host = host(1, UrgentConfig::OFF);
    for task in [11, 21] {
        vcpu(&mut host, task, 0);
        queue(&mut host, 0, task, 0, false);
    }
    let (mut at, mut ran) = (MS, [0, 0]);
    assert_eq!(asks(&mut host, at, 0), [chose(Choice::First)]);
    let mut running = 11;
    for _ in 0..400 {
        run(&mut host, at, running, 0, if running == 11 { 100 } else { 300 });
        at += SLICE;
        ran[usize::from(running == 21)] += SLICE;
        match asks(&mut host, at, running)[..] {
            [Decision::Chose { choice: Choice::First, .. }] => {
                preempt(&mut host, at, running, 0);
                running = 32 - running;
            }
            [Decision::Chose { choice: Choice::GoesOn, .. }] => {
                host.happens(&What::Stops { at, task: running });
            }
            ref other => panic!("{other:?}"),
        }
    }
    let ratio = ran[1] * 100 / ran[0];
    assert!((290..=310).contains(&ratio), "{ran:?}");
}

#[test]
fn the_sender_of_a_reschedule_interrupt_is_protected_and_its_recipient_is_next() {
    let mut host = host(1, ALL);
    for task in [11, 12, 21] {
        vcpu(&mut host, task, 0);
        queue(&mut host, 0, task, 0, false);
    }
    asks(&mut host, 0, 0);
    run(&mut host, 0, 11, 0, 100);
    host.happens(&What::Interrupt { at: 0, from: 12, to: 21, means: Means::Shootdown, halted: false });
    let at = MS;
    let sent = What::Interrupt { at, from: 11, to: 12, means: Means::Reschedule, halted: false };
    assert_eq!(host.happens(&sent), [Decision::Kicked { cpu: 0, idle: false }]);
    assert_eq!(asks(&mut host, at, 11), [Decision::Timed { ns: 500_000 }, chose(Choice::Protected)]);
    let at = at + 500_000;
    // 21 has been urgent for longer.
    assert_eq!(asks(&mut host, at, 11), [Decision::Timed { ns: 500_000 }, chose(Choice::Urgent)]);
    preempt(&mut host, at, 11, 0);
    run(&mut host, at, 21, 0, 100);
    assert_eq!(host.happens(&What::Acknowledges { task: 21 }), []);
    // The recipient's time is over, too.
    assert_eq!(asks(&mut host, at + 1, 21), [chose(Choice::First)]);
}

#[test]
fn fairness_limits_urgency() {
    let mut host = host(1, UrgentConfig { allowance_ns: MS, ..ALL });
    for task in [11, 21] {
        vcpu(&mut host, task, 0);
        queue(&mut host, 0, task, 0, false);
    }
    asks(&mut host, 0, 0);
    run(&mut host, 0, 11, 0, 100);
    preempt(&mut host, 5 * MS, 11, 0);
    run(&mut host, 5 * MS, 21, 0, 100);
    let at = 5 * MS + 1;
    let to_11 = What::Interrupt { at, from: 21, to: 11, means: Means::Shootdown, halted: false };
    assert_eq!(host.happens(&to_11), [Decision::Kicked { cpu: 0, idle: false }]);
    assert_eq!(asks(&mut host, at, 21), [chose(Choice::GoesOn)], "11 is ahead by 5 ms");
}

#[test]
fn whoever_gives_its_pcpu_away_makes_the_other_urgent() {
    let mut host = host(1, UrgentConfig::OFF);
    for task in [11, 12, 21] {
        vcpu(&mut host, task, 0);
        queue(&mut host, 0, task, 0, false);
    }
    asks(&mut host, 0, 0);
    run(&mut host, 0, 11, 0, 100);
    let gives = host.happens(&What::Yields { at: MS, task: 11, to: 21 });
    assert_eq!(
        gives,
        [Decision::Kicked { cpu: 0, idle: false }, Decision::Yielded { task: 11, gives: true }]
    );
    assert_eq!(asks(&mut host, MS, 11), [Decision::Timed { ns: 500_000 }, chose(Choice::Urgent)]);
    assert_eq!(host.task(21).waits, super::queue::Wait::Next(0));
}

#[test]
fn a_sender_that_waits_for_answers_keeps_its_pcpu_until_it_has_them() {
    let waits = UrgentConfig { tlb_wait: true, ..ALL };
    let mut host = host(1, waits);
    for task in [11, 12, 13, 14, 15, 16] {
        vcpu(&mut host, task, 0);
        queue(&mut host, 0, task, 0, false);
    }
    let asks_12 = |from| What::Interrupt { at: MS, from, to: 12, means: Means::Shootdown, halted: false };
    let gives = |host: &mut Host, task| {
        let decided = host.happens(&What::Yields { at: MS, task, to: 12 });
        decided.contains(&Decision::Yielded { task, gives: true })
    };
    for from in [11, 13, 14, 15, 16] {
        host.happens(&asks_12(from));
    }
    assert!(!gives(&mut host, 11) && !gives(&mut host, 15));
    assert!(gives(&mut host, 16), "there is room for four that wait");
    host.happens(&What::Acknowledges { task: 12 });
    assert!(gives(&mut host, 11) && gives(&mut host, 15), "it has answered");
    host.happens(&asks_12(11));
    host.happens(&What::Quiescent { at: MS, task: 11, sleeps: true });
    assert!(gives(&mut host, 11), "whoever sleeps waits for nothing");
}

#[test]
fn a_woken_vcpu_goes_where_no_sibling_is_unless_its_waker_is_about_to_halt() {
    let mut host = host(2, UrgentConfig::OFF);
    for (task, cpu) in [(11, 0), (12, 1), (21, 1)] {
        vcpu(&mut host, task, cpu);
        run(&mut host, 0, task, cpu, 100);
    }
    host.happens(&What::Quiescent { at: MS, task: 12, sleeps: true });
    let woken = |idle| What::Woken {
        task: 12,
        waker: 11,
        cpu: 0,
        last: 0,
        allowed: 3,
        idle,
        burst: WAITS,
        ours: true,
    };
    let placed = |cpu| [Decision::Placed { task: 12, cpu, idle: false }];
    assert_eq!(host.happens(&woken(0)), placed(1), "beside another VM");
    for _ in 0..4 {
        let wakes = What::Interrupt { at: MS, from: 11, to: 12, means: Means::Reschedule, halted: true };
        host.happens(&wakes);
        host.happens(&What::Halts { at: MS + 1000, task: 11 });
    }
    assert_eq!(host.happens(&woken(0)), placed(1), "the waker has halted");
    host.happens(&What::Interrupt { at: MS, from: 11, to: 12, means: Means::Reschedule, halted: true });
    assert_eq!(host.happens(&woken(0)), placed(0), "it is about to");
    assert_eq!(host.happens(&woken(2)), [Decision::Placed { task: 12, cpu: 1, idle: true }]);
}

#[test]
fn a_woken_vcpu_goes_to_an_idle_core_or_beside_a_task_of_the_other_kind() {
    let mut host = host(6, UrgentConfig::OFF);
    std::sync::Arc::make_mut(&mut host.header).threads = vec![3, 4, 5, 0, 1, 2];
    for (task, cpu, burst) in [(21, 0, COMPUTES), (31, 1, WAITS)] {
        vcpu(&mut host, task, cpu);
        host.happens(&What::Runs { at: 0, task, cpu, weight: 100, burst });
    }
    vcpu(&mut host, 11, 4);
    host.happens(&What::Quiescent { at: 0, task: 11, sleeps: true });
    let mut place = |idle, last, burst| {
        let woken =
            What::Woken { task: 11, waker: 1, cpu: 0, last, allowed: u64::MAX, idle, burst, ours: true };
        match host.happens(&woken)[..] {
            [Decision::Placed { cpu, idle: true, .. }] => cpu,
            ref other => panic!("{other:?}"),
        }
    };
    let all = 0b11_1100;
    for burst in [WAITS, COMPUTES] {
        assert_eq!(place(all, 4, burst), 2, "a core of its own, {burst}");
        assert_eq!(place(all, 5, burst), 5, "a core of its own, where it was, {burst}");
    }
    let shared = 0b01_1000;
    for last in [3, 4] {
        assert_eq!(place(shared, last, WAITS), 3, "beside the one that computes");
        assert_eq!(place(shared, last, COMPUTES), 4, "beside the one that waits");
    }
    assert_eq!(place(0b01_0000, 3, WAITS), 4, "anywhere rather than nowhere");
}

#[test]
fn a_pcpu_without_work_takes_some_from_the_next_one_as_far_as_affinity_allows() {
    let mut host = host(3, UrgentConfig::OFF);
    let allowed = 0b110;
    host.happens(&What::Queued { at: 0, task: 5, cpu: 1, weight: 100, allowed, idle: 0, woken: false });
    assert_eq!(asks(&mut host, 1, 0), [chose(Choice::Idle)]);
    queue(&mut host, 2, 6, 2, false);
    assert_eq!(asks(&mut host, 3, 0), [chose(Choice::Stolen)]);
    assert_eq!(host.task(6).waits, super::queue::Wait::Next(0));
}

#[test]
fn work_comes_from_the_same_cache_first() {
    let mut host = host(4, UrgentConfig::OFF);
    std::sync::Arc::make_mut(&mut host.header).llcs = vec![0, 1, 0, 1];
    for (task, cpu) in [(1, 1), (2, 2), (3, 3)] {
        queue(&mut host, 0, task, cpu, false);
    }
    for task in [2, 1, 3] {
        assert_eq!(asks(&mut host, 1, 0), [chose(Choice::Stolen)]);
        assert_eq!(host.task(task).waits, super::queue::Wait::Next(0), "{task}");
    }
}
