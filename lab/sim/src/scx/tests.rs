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

fn runs(host: &mut Host, at: u64, task: Task, cpu: u32) -> Vec<Decision> {
    host.happens(&What::Runs { at, task, cpu, weight: 100, burst: WAITS })
}

/// The task that ran stops and waits again.
fn preempt(host: &mut Host, at: u64, task: Task, cpu: u32) {
    host.happens(&What::Stops { at, task });
    queue(host, at, task, cpu, false);
}

fn asks(host: &mut Host, at: u64, running: Task) -> Vec<Decision> {
    host.happens(&What::Asks { at, cpu: 0, running, burst: 0 })
}

/// The vCPU 11 wakes `task`, on pCPU 0, where that was last, too.
fn woken(at: u64, task: Task, allowed: u64, idle: u64) -> What {
    What::Woken { at, task, waker: 11, cpu: 0, last: 0, allowed, idle, burst: WAITS, ours: true }
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
    assert_eq!(host.happens(&sent), []);
    assert_eq!(host.happens(&What::Delivered { from: 11 }), [Decision::Kicked { cpu: 0, idle: false }]);
    assert_eq!(asks(&mut host, at, 11), [Decision::Timed { ns: 500_000 }, chose(Choice::Protected)]);
    let at = at + 500_000;
    // 21 has been urgent for longer.
    assert_eq!(asks(&mut host, at, 11), [Decision::Timed { ns: 500_000 }, chose(Choice::Urgent)]);
    preempt(&mut host, at, 11, 0);
    run(&mut host, at, 21, 0, 100);
    assert_eq!(host.happens(&What::Acknowledges { task: 21 }), []);
    // The recipient's time has not begun: it waited for those two. The pCPU decides anew before that ends.
    assert_eq!(asks(&mut host, at + 1, 21), [chose(Choice::Urgent)]);
    preempt(&mut host, at + 1, 21, 0);
    run(&mut host, at + 1, 12, 0, 100);
    let at = at + 500_001;
    assert_eq!(asks(&mut host, at, 12), [chose(Choice::First)]);
}

#[test]
fn a_recipient_is_next_on_its_senders_pcpu_when_kvm_has_delivered_the_interrupt() {
    let mut host = host(2, ALL);
    for (task, cpu) in [(11, 0), (12, 0), (13, 0), (14, 1)] {
        vcpu(&mut host, task, cpu);
        queue(&mut host, 0, task, cpu, false);
    }
    asks(&mut host, 0, 0);
    run(&mut host, 0, 11, 0, 100);
    let sends = |to| What::Interrupt { at: MS, from: 11, to, means: Means::Shootdown, halted: false };
    let kicked = |cpu| [Decision::Kicked { cpu, idle: false }];
    // To several at once: elsewhere nobody has to wait for the end of that.
    assert_eq!(host.happens(&sends(12)), []);
    assert_eq!(host.happens(&sends(14)), kicked(1));
    assert_eq!(host.happens(&sends(13)), []);
    assert_eq!(host.happens(&What::Delivered { from: 11 }), kicked(0));
    assert_eq!(host.happens(&What::Delivered { from: 11 }), []);
    // It cannot go on before: what was not done then is missing.
    assert_eq!(host.happens(&sends(12)), []);
    assert_eq!(host.happens(&What::Halts { at: MS, task: 11 }), kicked(0));
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
    assert_eq!(host.happens(&to_11), []);
    assert_eq!(host.happens(&What::Delivered { from: 21 }), [Decision::Kicked { cpu: 0, idle: false }]);
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
    let by_a_sibling = |idle| woken(MS, 12, 3, idle);
    let placed = |cpu| [Decision::Placed { task: 12, cpu, idle: false }];
    assert_eq!(host.happens(&by_a_sibling(0)), placed(1), "beside another VM");
    for _ in 0..4 {
        let wakes = What::Interrupt { at: MS, from: 11, to: 12, means: Means::Reschedule, halted: true };
        host.happens(&wakes);
        host.happens(&What::Halts { at: MS + 1000, task: 11 });
    }
    assert_eq!(host.happens(&by_a_sibling(0)), placed(1), "the waker has halted");
    host.happens(&What::Interrupt { at: MS, from: 11, to: 12, means: Means::Reschedule, halted: true });
    assert_eq!(host.happens(&by_a_sibling(0)), placed(0), "it is about to");
    assert_eq!(host.happens(&by_a_sibling(2)), [Decision::Placed { task: 12, cpu: 1, idle: true }]);
}

#[test]
fn a_waker_that_is_about_to_halt_does_so_first_and_has_no_longer_than_expected() {
    let mut host = host(1, UrgentConfig::OFF);
    for task in [11, 12] {
        vcpu(&mut host, task, 0);
    }
    run(&mut host, 0, 11, 0, 100);
    host.happens(&What::Quiescent { at: 0, task: 12, sleeps: true });
    let wakes = |host: &mut Host, at| {
        host.happens(&What::Interrupt { at, from: 11, to: 12, means: Means::Reschedule, halted: true });
    };
    for _ in 0..4 {
        wakes(&mut host, MS);
        host.happens(&What::Halts { at: MS, task: 11 });
    }
    let at = 2 * MS;
    wakes(&mut host, at);
    let woken = woken(at, 12, 1, 0);
    assert_eq!(host.happens(&woken), [Decision::Placed { task: 12, cpu: 0, idle: false }]);
    assert_eq!(queue(&mut host, at, 12, 0, true), [Decision::Kicked { cpu: 0, idle: false }]);
    let protected = [Decision::Timed { ns: 40_000 }, chose(Choice::Protected)];
    assert_eq!(asks(&mut host, at + 10_000, 11), protected);
    assert_eq!(asks(&mut host, at + 50_000, 11), [chose(Choice::First)]);
}

#[test]
fn under_resched_co_nobody_waits_for_its_waker() {
    let mut host = host(2, ALL);
    for (task, cpu) in [(11, 0), (12, 1), (21, 1)] {
        vcpu(&mut host, task, cpu);
        run(&mut host, 0, task, cpu, 100);
    }
    host.happens(&What::Quiescent { at: MS, task: 12, sleeps: true });
    for _ in 0..4 {
        host.happens(&What::Interrupt { at: MS, from: 11, to: 12, means: Means::Reschedule, halted: true });
        host.happens(&What::Halts { at: MS, task: 11 });
    }
    host.happens(&What::Interrupt { at: MS, from: 11, to: 12, means: Means::Reschedule, halted: true });
    let woken = woken(MS, 12, 3, 0);
    assert_eq!(host.happens(&woken), [Decision::Placed { task: 12, cpu: 1, idle: false }]);
    assert_eq!(queue(&mut host, MS, 12, 1, true), [Decision::Preempts { task: 12, cpu: 1 }]);
    preempt(&mut host, MS, 21, 1);
    assert_eq!(runs(&mut host, MS, 12, 1), [Decision::Timed { ns: 500_000 }], "for an urgent slice");
}

/// The vCPUs 11 and 21 run on the pCPUs 0 and 1 from 0 on, and 12 and 31 sleep.
fn with_sleepers(rules: UrgentConfig) -> Host {
    let mut host = host(2, rules);
    for (task, cpu) in [(11, 0), (21, 1)] {
        vcpu(&mut host, task, cpu);
        run(&mut host, 0, task, cpu, 100);
    }
    for task in [12, 31] {
        vcpu(&mut host, task, 1);
        host.happens(&What::Quiescent { at: 0, task, sleeps: true });
    }
    host
}

#[test]
fn a_woken_task_preempts_at_once_who_has_had_more_by_far() {
    let host = with_sleepers(UrgentConfig::OFF);
    let preempts = |task| [Decision::Preempts { task, cpu: 1 }];
    let kicked = [Decision::Kicked { cpu: 1, idle: false }];
    assert_eq!(queue(&mut host.clone(), MS, 31, 1, true), [], "not for a little less");
    let mut host = host;
    let at = MS + 1;
    assert_eq!(queue(&mut host.clone(), at, 31, 1, false), [], "it has not woken");
    assert_eq!(queue(&mut host, at, 31, 1, true), preempts(31));
    assert_eq!(host.task(31).waits, super::queue::Wait::Next(1));
    assert_eq!(queue(&mut host.clone(), at, 12, 1, true), kicked, "one preempts already");
    preempt(&mut host, at, 21, 1);
    assert_eq!(queue(&mut host.clone(), MS, 12, 1, true), kicked, "nobody runs");
    run(&mut host, at, 31, 1, 100);
    assert_eq!(queue(&mut host.clone(), 3 * MS, 12, 1, true), preempts(12));
    host.happens(&What::Enters { task: 41 });
    queue(&mut host, at, 41, 1, false);
    assert_eq!(queue(&mut host, 3 * MS, 12, 1, true), kicked, "another one is first");
}

#[test]
fn what_becomes_urgent_while_a_woken_task_is_about_to_run_is_not_forgotten() {
    let (kicked, at) = ([Decision::Kicked { cpu: 1, idle: false }], 4 * MS);
    let mut host = with_sleepers(ALL);
    assert_eq!(queue(&mut host, at, 31, 1, true), [Decision::Preempts { task: 31, cpu: 1 }]);
    queue(&mut host, at, 12, 1, false);
    let sent = What::Interrupt { at, from: 11, to: 12, means: Means::Shootdown, halted: false };
    assert_eq!(host.happens(&sent), kicked, "without effect: one is next");
    preempt(&mut host, at, 21, 1);
    assert_eq!(runs(&mut host, at, 31, 1), kicked);
}

#[test]
fn a_pcpu_is_asked_where_an_urgent_vcpu_waits_or_might_run() {
    let host = with_sleepers(ALL);
    let kicked = [Decision::Kicked { cpu: 1, idle: false }];
    let sends = |from, to, means| What::Interrupt { at: MS, from, to, means, halted: false };
    let wakes = |host: &Host| queue(&mut host.clone(), 2 * MS, 31, 1, true);
    assert_eq!(wakes(&host), [Decision::Preempts { task: 31, cpu: 1 }]);
    for sent in
        [sends(21, 11, Means::Reschedule), sends(11, 21, Means::Shootdown), sends(11, 21, Means::Reschedule)]
    {
        let mut host = host.clone();
        host.happens(&sent);
        assert_eq!(wakes(&host), kicked, "{sent:?}");
    }
    let mut host = host;
    queue(&mut host, MS, 12, 1, false);
    host.happens(&sends(11, 12, Means::Shootdown));
    assert_eq!(wakes(&host), kicked, "one waits");
}

#[test]
fn of_pcpus_with_about_the_same_load_a_woken_vcpu_goes_where_the_task_has_had_most() {
    let mut host = host(3, UrgentConfig::OFF);
    for (task, cpu, began) in [(21, 0, 2 * MS), (31, 1, MS), (41, 2, 2 * MS)] {
        vcpu(&mut host, task, cpu);
        run(&mut host, began, task, cpu, 100);
    }
    vcpu(&mut host, 12, 0);
    host.happens(&What::Quiescent { at: 0, task: 12, sleeps: true });
    let placed = |host: &Host| {
        let woken = woken(3 * MS, 12, 7, 0);
        match host.clone().happens(&woken)[..] {
            [Decision::Placed { cpu, idle: false, .. }] => cpu,
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(placed(&host), 1);
    // With more to run its tasks take turns.
    queue(&mut host, 2 * MS, 51, 1, false);
    assert_eq!(placed(&host), 0);
}

/// Three cores with two threads each, 0 and 3, 1 and 4, 2 and 5, of which 0 has a task that computes, and 1 one that waits; where
/// the vCPU 11 goes when it is woken.
fn with_threads() -> (Host, impl Fn(&Host, u64, u32, u64) -> u32) {
    let mut host = host(6, UrgentConfig::OFF);
    std::sync::Arc::make_mut(&mut host.header).threads = vec![3, 4, 5, 0, 1, 2];
    for (task, cpu, burst) in [(21, 0, COMPUTES), (31, 1, WAITS)] {
        vcpu(&mut host, task, cpu);
        host.happens(&What::Runs { at: 0, task, cpu, weight: 100, burst });
    }
    for task in [11, 41] {
        vcpu(&mut host, task, 4);
        host.happens(&What::Quiescent { at: 0, task, sleeps: true });
    }
    (host, |host: &Host, idle, last, burst| placed(&mut host.clone(), 11, idle, last, burst))
}

fn placed(host: &mut Host, task: Task, idle: u64, last: u32, burst: u64) -> u32 {
    let woken =
        What::Woken { at: MS, task, waker: 1, cpu: 0, last, allowed: u64::MAX, idle, burst, ours: true };
    match host.happens(&woken)[..] {
        [Decision::Placed { cpu, idle: true, .. }] => cpu,
        ref other => panic!("{other:?}"),
    }
}

const ALL_IDLE: u64 = 0b11_1100;
const THREADS_IDLE: u64 = 0b01_1000;

#[test]
fn a_woken_vcpu_goes_to_an_idle_core_or_beside_a_task_of_the_other_kind() {
    let (host, place) = with_threads();
    for burst in [WAITS, COMPUTES] {
        assert_eq!(place(&host, ALL_IDLE, 4, burst), 2, "a core of its own, {burst}");
        assert_eq!(place(&host, ALL_IDLE, 5, burst), 5, "a core of its own, where it was, {burst}");
    }
    for last in [3, 4] {
        assert_eq!(place(&host, THREADS_IDLE, last, WAITS), 3, "beside the one that computes");
        assert_eq!(place(&host, THREADS_IDLE, last, COMPUTES), 4, "beside the one that waits");
    }
    assert_eq!(place(&host, 0b01_0000, 3, WAITS), 4, "anywhere rather than nowhere");
}

#[test]
fn a_core_is_idle_when_its_task_stops_and_no_longer_when_a_vcpu_is_placed_there() {
    let (mut host, place) = with_threads();
    host.happens(&What::Stops { at: MS, task: 21 });
    assert_eq!(place(&host, THREADS_IDLE, 4, COMPUTES), 3);
    let (mut host, _) = with_threads();
    assert_eq!(placed(&mut host, 11, ALL_IDLE, 4, COMPUTES), 2);
    // Before that one runs.
    assert_eq!(placed(&mut host, 41, ALL_IDLE & !0b100, 5, COMPUTES), 4, "beside the one that waits");
}

#[test]
fn a_task_that_goes_on_for_long_computes() {
    let (mut host, place) = with_threads();
    host.happens(&What::Asks { at: MS, cpu: 1, running: 31, burst: COMPUTES });
    assert_eq!(place(&host, THREADS_IDLE, 4, WAITS), 4, "its last one, beside one that computes, too");
}

#[test]
fn an_idle_pcpu_with_the_same_cache_comes_first() {
    let mut host = host(4, UrgentConfig::OFF);
    std::sync::Arc::make_mut(&mut host.header).llcs = vec![0, 1, 0, 1];
    vcpu(&mut host, 11, 3);
    host.happens(&What::Quiescent { at: 0, task: 11, sleeps: true });
    for (idle, last, expected) in [(0b1111, 3, 3), (0b0111, 3, 1), (0b0101, 3, 0)] {
        assert_eq!(placed(&mut host, 11, idle, last, WAITS), expected);
        host.happens(&What::Quiescent { at: 0, task: 11, sleeps: true });
    }
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
