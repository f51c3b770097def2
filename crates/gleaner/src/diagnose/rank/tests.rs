use std::collections::BTreeMap;

use gleaner_kernel::interrupts::InterruptCounters;
use gleaner_policy::CpuId;
use gleaner_trace::{Events, Histogram, Vcpu};

use super::*;
use crate::diagnose::evidence::Costs;
use crate::diagnose::exits::Recorded;
use crate::diagnose::exits::tests::recorded;

const COSTS: Costs = Costs {
    halted: Duration::from_micros(30),
    ready: Duration::from_micros(2),
    interrupt: Duration::from_micros(5),
    measured: true,
};

/// `count` lengths of `us` microseconds each; all fall into one bucket.
fn lengths(count: u64, us: u64) -> Histogram {
    let ns = us * 1000;
    let power = ns.ilog2();
    let bucket = (power - 2) * 8 + u32::try_from((ns >> (power - 3)) & 7).unwrap();
    let buckets = BTreeMap::from([(u16::try_from(bucket).unwrap(), count)]);
    Histogram { count, total_ns: count * ns, buckets }
}

fn snapshot() -> Snapshot {
    let vcpu = |cpu| Vcpu {
        cpu: CpuId(cpu),
        polls: Histogram::default(),
        halts: Histogram::default(),
        delays: Histogram::default(),
        events: Events::default(),
        received: InterruptCounters::default(),
    };
    Snapshot { elapsed: Duration::from_secs(1), vcpus: vec![vcpu(0), vcpu(1)], ..Snapshot::default() }
}

fn thread(name: &str, cpu_ms: u64, ticks: u64) -> ThreadStats {
    ThreadStats {
        name: name.to_owned(),
        cpu_time: Duration::from_millis(cpu_ms),
        ticks,
        user_ticks: ticks,
        ..ThreadStats::default()
    }
}

fn rank(snapshot: &Snapshot) -> Vec<Kind> {
    causes(&Evidence { snapshot, costs: COSTS, recorded: None, stolen: 0.0, vcpus: 2 })
        .iter()
        .map(|c| c.kind)
        .collect()
}

fn top(snapshot: &Snapshot) -> Option<Kind> {
    verdict(&Evidence { snapshot, costs: COSTS, recorded: None, stolen: 0.0, vcpus: 2 })
}

#[test]
fn computation_has_no_cause() {
    let mut snapshot = snapshot();
    snapshot.threads = vec![thread("compute", 1900, 475)];
    snapshot.preempted = lengths(10, 500);
    snapshot.wakes.same_vcpu = lengths(100, 3);
    assert_eq!(top(&snapshot), None);
    assert_eq!(rank(&snapshot), [Kind::RunQueueDelay]);
}

#[test]
fn waking_halted_vcpus_is_blocking_synchronisation() {
    let mut snapshot = snapshot();
    snapshot.wakes.halted = lengths(20_000, 25);
    snapshot.events.sent_call = 20_000;
    snapshot.vcpus[0].events = Events { tick_stopped: 10_000, timer_programmed: 30_000, ..Events::default() };
    assert_eq!(rank(&snapshot), [Kind::Hlt, Kind::Ipi, Kind::Tick]);
    let found =
        causes(&Evidence { snapshot: &snapshot, costs: COSTS, recorded: None, stolen: 0.0, vcpus: 2 });
    assert!((found[0].lost_us_per_second - 460_000.0).abs() < 1.0, "{}", found[0].lost_us_per_second);
    assert!((found[2].per_second - 20_000.0).abs() < 1e-6, "only what stopping the tick explains");
}

#[test]
fn waking_vcpus_that_are_awake_is_the_interrupts_loss() {
    let mut snapshot = snapshot();
    snapshot.wakes.awake = lengths(10_000, 22);
    snapshot.events.sent_reschedule = 10_000;
    let found =
        causes(&Evidence { snapshot: &snapshot, costs: COSTS, recorded: None, stolen: 0.0, vcpus: 2 });
    assert_eq!(found[0].kind, Kind::Ipi);
    assert!((found[0].lost_us_per_second - 250_000.0).abs() < 1.0, "{}", found[0].lost_us_per_second);
    // Interrupts for shootdowns are not a second cause.
    snapshot.wakes.awake = Histogram::default();
    snapshot.threads = vec![thread("tlb", 900, 225)];
    snapshot.events = Events { sent_call: 10_000, sent_tlb: 10_000, ..Events::default() };
    assert_eq!(rank(&snapshot), [Kind::TlbShootdown]);
}

#[test]
fn the_kernels_count_says_which_calls_were_shootdowns() {
    let mut snapshot = snapshot();
    snapshot.threads = vec![thread("tlb", 900, 225)];
    // The windows caught a tenth of them, which the kernel counted all the time.
    snapshot.events = Events { sent_call: 40_000, sent_tlb: 4000, ..Events::default() };
    assert_eq!(rank(&snapshot), [Kind::Ipi, Kind::TlbShootdown]);
    snapshot.vcpus[0].received =
        InterruptCounters { call: 50_000, tlb: 50_000, ..InterruptCounters::default() };
    assert_eq!(rank(&snapshot), [Kind::TlbShootdown]);
    // Shootdowns by other programs do not count if the workload sent none.
    snapshot.events.sent_tlb = 0;
    assert_eq!(rank(&snapshot), [Kind::Ipi]);
}

#[test]
fn rates_are_per_second_of_the_observation() {
    let mut snapshot = snapshot();
    snapshot.elapsed = Duration::from_secs(4);
    snapshot.wakes.halted = lengths(20_000, 25);
    let found =
        causes(&Evidence { snapshot: &snapshot, costs: COSTS, recorded: None, stolen: 0.0, vcpus: 2 });
    assert!((found[0].per_second - 5000.0).abs() < 1e-6);
    assert!((found[0].lost_us_per_second - 115_000.0).abs() < 1.0);
}

#[test]
fn shootdowns_cost_at_most_what_the_threads_used() {
    let mut snapshot = snapshot();
    snapshot.threads = vec![thread("tlb", 900, 225)];
    snapshot.events.sent_tlb = 20_000;
    assert_eq!(top(&snapshot), Some(Kind::TlbShootdown));
    snapshot.events.sent_tlb = 200_000;
    let found =
        causes(&Evidence { snapshot: &snapshot, costs: COSTS, recorded: None, stolen: 0.0, vcpus: 2 });
    assert!((found[0].lost_us_per_second - 900_000.0).abs() < 1.0);
    // Measured, if possible.
    snapshot.shootdown = lengths(200_000, 1);
    let found =
        causes(&Evidence { snapshot: &snapshot, costs: COSTS, recorded: None, stolen: 0.0, vcpus: 2 });
    assert!((found[0].lost_us_per_second - 200_000.0).abs() < 1.0);
}

#[test]
fn what_waits_behind_spinners_is_theirs() {
    let mut snapshot = snapshot();
    snapshot.threads = vec![ThreadStats { spin_ticks: 300, ..thread("spinner", 1900, 475) }];
    snapshot.preempted = lengths(400, 4000);
    assert_eq!(rank(&snapshot), [Kind::UserSpinning, Kind::RunQueueDelay]);
}

#[test]
fn yields_are_spinning_only_without_wake_ups() {
    let mut snapshot = snapshot();
    let yields = ThreadStats { yield_ticks: 200, user_ticks: 50, ..thread("yields", 1000, 250) };
    snapshot.threads = vec![yields.clone()];
    assert_eq!(top(&snapshot), Some(Kind::UserSpinning));
    // As in a convoy, whose threads block all the time.
    snapshot.threads = vec![ThreadStats { woken: 20_000, ..yields }];
    assert_eq!(top(&snapshot), None);
}

#[test]
fn too_many_runnable_threads_delay_each_other() {
    let mut snapshot = snapshot();
    snapshot.threads = vec![thread("busy", 1990, 497)];
    snapshot.preempted = lengths(500, 3500);
    snapshot.wakes.same_vcpu = lengths(100, 2000);
    assert_eq!(top(&snapshot), Some(Kind::RunQueueDelay));
}

#[test]
fn steal_and_io_and_the_kernels_locks_are_causes() {
    let mut snapshot = snapshot();
    snapshot.waits.io = lengths(5000, 10);
    snapshot.kernel_spin = lengths(10_000, 20);
    let found =
        causes(&Evidence { snapshot: &snapshot, costs: COSTS, recorded: None, stolen: 0.5, vcpus: 2 });
    let kinds: Vec<Kind> = found.iter().map(|cause| cause.kind).collect();
    assert_eq!(kinds, [Kind::Steal, Kind::KernelSpinning, Kind::IoWait]);
    assert!(found[2].estimate.contains("5000 waits were shorter"), "{}", found[2].estimate);
}

#[test]
fn the_edges_behind_it_are_named_with_their_rates() {
    let mut snapshot = snapshot();
    let edge = |waker: &str, count, halted| Edge {
        waker: waker.to_owned(),
        wakee: "server".to_owned(),
        count,
        halted,
        total: Duration::from_micros(25 * count),
        polling: 0,
    };
    snapshot.edges = vec![edge("timer", 30_000, 0), edge("client", 20_000, 20_000)];
    snapshot.wakes.halted = lengths(20_000, 25);
    let found =
        causes(&Evidence { snapshot: &snapshot, costs: COSTS, recorded: None, stolen: 0.0, vcpus: 2 });
    assert_eq!(found[0].behind, ["client wakes server: 20000 a second, 25.0µs each"]);
}

#[test]
fn only_the_most_expensive_cause_is_the_verdict_and_only_where_it_matters() {
    let mut snapshot = snapshot();
    snapshot.wakes.halted = lengths(1000, 25);
    assert_eq!((rank(&snapshot), top(&snapshot)), (vec![Kind::Hlt], None));
    snapshot.wakes.halted = lengths(2000, 25);
    assert_eq!(top(&snapshot), Some(Kind::Hlt));
    // With steal, and on vCPUs shared with other programs, the same wake-ups are not the verdict.
    let of = |snapshot: &Snapshot, stolen| {
        verdict(&Evidence { snapshot, costs: COSTS, recorded: None, stolen, vcpus: 2 })
    };
    assert_eq!((of(&snapshot, 0.04), of(&snapshot, 0.3)), (Some(Kind::Hlt), Some(Kind::Steal)));
    snapshot.preempted = lengths(100, 4000);
    assert_eq!((of(&snapshot, 0.04), of(&snapshot, 0.5)), (Some(Kind::RunQueueDelay), Some(Kind::Steal)));
    // Threads that spin at a barrier preempt each other all the time.
    snapshot.threads = vec![ThreadStats { spin_ticks: 380, ..thread("barrier", 1900, 475) }];
    assert_eq!(of(&snapshot, 0.5), Some(Kind::UserSpinning));
}

#[test]
fn exits_cost_what_the_host_recorded() {
    let recorded = recorded("ping");
    let mut snapshot = snapshot();
    snapshot.wakes.halted = lengths(20_000, 25);
    snapshot.threads = vec![thread("tlb", 900, 225)];
    snapshot.events = Events { sent_call: 20_000, sent_tlb: 10_000, ..Events::default() };
    snapshot.vcpus[0].events = Events { tick_stopped: 10_000, timer_programmed: 30_000, ..Events::default() };
    let found = |recorded: Option<&Recorded>| {
        let costs = COSTS.with(recorded);
        let found = causes(&Evidence { snapshot: &snapshot, costs, recorded, stolen: 0.0, vcpus: 2 });
        let of = |kind| found.iter().find(|cause| cause.kind == kind).unwrap().clone();
        [Kind::Tick, Kind::Ipi, Kind::TlbShootdown, Kind::Hlt].map(of)
    };
    let close = |cause: &Cause, us: f64| assert!((cause.lost_us_per_second - us).abs() < 1.0, "{cause:?}");
    let [tick, ipi, tlb, hlt] = found(None);
    close(&tick, 40_000.0);
    close(&ipi, 50_000.0);
    close(&tlb, 300_000.0);
    assert_eq!(tick.estimate, "an exit of 2.0µs each, assumed; of the whole machine");
    assert!(
        [&ipi, &tlb, &hlt].iter().all(|cause| !cause.estimate.contains("record")),
        "{ipi:?} {tlb:?} {hlt:?}"
    );
    // 1.3 us to program the timer, 2.2 us for an interrupt, 4.096 us more until a call is taken.
    let [tick, ipi, tlb, with] = found(Some(&recorded));
    close(&tick, 26_000.0);
    close(&ipi, 22_000.0);
    close(&tlb, 62_960.0);
    assert_eq!(tick.estimate, "an exit of 1.3µs each, by the host's record; of the whole machine");
    assert!(
        ipi.estimate.starts_with("2.2µs of its sender's time each, by the host's record, and"),
        "{ipi:?}"
    );
    assert!(tlb.estimate.ends_with("6.3µs each, by the host's record"), "{tlb:?}");
    // How long wake-ups took the guest has measured itself; what is behind them the host knows.
    close(&with, hlt.lost_us_per_second);
    assert!(
        with.estimate.ends_with("a halt took 8.0µs on a pCPU, and 5.0µs until it had one again"),
        "{with:?}"
    );
}

#[test]
fn a_wake_up_that_was_not_measured_here_is_taken_from_the_host() {
    let recorded = recorded("ping");
    let assumed = Costs { measured: false, ..COSTS }.with(Some(&recorded));
    assert_eq!(
        (assumed.halted, assumed.interrupt),
        (Duration::from_nanos(11_920), Duration::from_nanos(2200))
    );
    assert_eq!(COSTS.with(Some(&recorded)).halted, COSTS.halted);
    assert_eq!(COSTS.with(None), COSTS);
}
