//! Pairs and reports built from samples with known numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_policy::{Block, CpuSet, Difference, Fixed, Signal, Waiting, WaitingSource, WorkloadInterval};
use gleaner_proto::result::Environment;

use super::*;

const US: Duration = Duration::from_micros(1);

/// 1.5 s of a program under `setting` on two vCPUs: its rate, and what Gleaner observed per second.
fn sample(setting: &str, rate: f64, per_second: WorkloadInterval) -> Sample {
    let (length, none) = (Duration::from_millis(1500), Duration::ZERO);
    let workload = shares::part(per_second, 1.5);
    let interval = Interval {
        setting: setting.parse::<Fixed>().unwrap().on(&CpuSet::first(2)).unwrap(),
        length,
        seen: Block { period: length, workload, waking: none, polled: none },
        cost: none,
    };
    Sample { rate, latency_us: None, interval }
}

fn seen(cpu_ms: u32, user_ms: u32, switches: u64, moved: Option<u64>) -> WorkloadInterval {
    WorkloadInterval {
        cpu_time: 1000 * cpu_ms * US,
        user_time: 1000 * user_ms * US,
        switches,
        moved_bytes: moved,
        ..WorkloadInterval::default()
    }
}

/// Three equal rounds of a case.
fn pair(case: &str, setting: &str, baseline: &Sample, candidate: &Sample) -> Pair {
    let case = find(case).unwrap().remove(0);
    Pair::new(&case, setting, vec![(baseline.clone(), candidate.clone()); 3]).unwrap()
}

fn said(pair: &Pair, signal: Signal) -> SignalFinding {
    *pair.signals.iter().find(|said| said.signal == signal).unwrap()
}

/// Retention that makes a convoy do less work and switch more for the same CPU time.
fn convoy() -> Pair {
    let baseline = sample("halt", 100.0, seen(1300, 130, 54_000, Some(0)));
    let candidate = sample("haltpoll:200us", 70.0, seen(1430, 90, 86_000, Some(0)));
    pair("convoy", "haltpoll:200us", &baseline, &candidate)
}

#[test]
fn a_signal_that_rises_while_progress_falls_is_wrong_and_decides() {
    let pair = convoy();
    assert_eq!((pair.difference, pair.progress.side), (Difference::Retention, Side::Lower));
    let work = said(&pair, Signal::WorkTime);
    assert_eq!((work.verdict, work.decides), (Some(Verdict::Wrong), true));
    assert!((work.size_error.unwrap() - (1.1f64 / 0.7).ln()).abs() < 1e-3, "{work:?}");
    // Invalid for retention, but its number is still shown.
    let handoffs = said(&pair, Signal::Handoffs);
    assert_eq!((handoffs.verdict, handoffs.size_error), (Some(Verdict::Silent), None));
    assert!(handoffs.ratio.unwrap().median > 1.5 && !handoffs.decides);
    // 13 ms in a block of 10 ms are too few ticks.
    assert_eq!(said(&pair, Signal::UserTime).verdict, Some(Verdict::Silent));
    assert_eq!(said(&pair, Signal::Moved).verdict, Some(Verdict::Silent));
    assert_eq!(said(&pair, Signal::Waiting).verdict, None, "waiting is judged in open loops");
}

#[test]
fn on_another_active_set_long_blocks_make_user_time_valid() {
    let baseline = sample("halt", 100.0, seen(1900, 600, 20_000, None));
    let candidate = sample("consolidate:1", 50.0, seen(950, 300, 200, None));
    let slower = pair("barrier", "consolidate:1", &baseline, &candidate);
    assert_eq!((slower.difference, slower.progress.side), (Difference::ActiveSet, Side::Lower));
    // 60 ms of 100 ms under the baseline: enough on one side suffices.
    let user = said(&slower, Signal::UserTime);
    assert_eq!((user.verdict, user.decides), (Some(Verdict::Right), true));
    assert_eq!(said(&slower, Signal::WorkTime).verdict, Some(Verdict::Silent));
    assert_eq!(said(&slower, Signal::Handoffs).verdict, Some(Verdict::Silent), "other pieces of work");
}

#[test]
fn an_open_loop_has_no_progress_and_waiting_is_judged_by_its_latency() {
    let open = |setting, latency_us, waiting_us: u32, moved| {
        let waiting = Waiting {
            wake_ups: 10_000,
            total: 10_000 * waiting_us * US,
            tail: waiting_us * US,
            source: WaitingSource::Estimated,
        };
        let workload = WorkloadInterval { waiting: Some(waiting), ..seen(300, 50, 10_000, Some(moved)) };
        Sample { latency_us: Some(latency_us), ..sample(setting, 5000.0, workload) }
    };
    let baseline = open("halt", 100.0, 40, 5_000_000);
    let faster =
        pair("redis-open-5000-1", "haltpoll:200us", &baseline, &open("haltpoll:200us", 50.0, 10, 5_010_000));
    assert_eq!((faster.progress.side, faster.latency.unwrap().side), (Side::Same, Side::Higher));
    let (moved, waiting) = (said(&faster, Signal::Moved), said(&faster, Signal::Waiting));
    assert_eq!((moved.verdict, moved.decides), (Some(Verdict::Right), true));
    assert_eq!((waiting.verdict, waiting.decides), (Some(Verdict::Right), true));
    assert!((waiting.size_error.unwrap() - 2f64.ln()).abs() < 1e-3, "4 against 2: {waiting:?}");
    let slower = open("haltpoll:200us", 150.0, 10, 6_000_000);
    let slower = pair("redis-open-5000-1", "haltpoll:200us", &baseline, &slower);
    assert_eq!(said(&slower, Signal::Waiting).verdict, Some(Verdict::Wrong));
    assert_eq!(
        said(&slower, Signal::Moved).verdict,
        Some(Verdict::Wrong),
        "the clients' rate is what it was"
    );
}

#[test]
fn rounds_are_paired_and_a_round_that_failed_is_left_out() {
    let case = find("convoy").unwrap().remove(0);
    let of = |setting: &str, rate| Some(sample(setting, rate, seen(1000, 100, 1000, None)));
    let untouched = vec![of("halt", 100.0), of("halt", 200.0), of("halt", 100.0)];
    let polling = vec![of("haltpoll:200us", 200.0), None, of("haltpoll:200us", 220.0)];
    let none = vec![None, None, None];
    let pairs = pairs(&case, &[untouched, polling, none.clone(), none]);
    assert_eq!(pairs.len(), 1);
    let ratio = pairs[0].progress.ratio;
    assert!((ratio.low - 2.0).abs() < 1e-9 && (ratio.high - 2.2).abs() < 1e-9, "{ratio:?}");
}

fn report(pairs: Vec<Pair>) -> Report {
    let environment = Environment {
        date: "2026-01-01".to_owned(),
        gleaner: "0".to_owned(),
        kernel: "6.1".to_owned(),
        kernel_version: String::new(),
        hypervisor: "KVM".to_owned(),
        virtualised: true,
        cpu_model: "a CPU".to_owned(),
        vcpus: 2,
        memory_bytes: 1 << 30,
        cpuidle_driver: "none".to_owned(),
        cpuidle_governor: "none".to_owned(),
        preemption: String::new(),
        knobs: BTreeMap::new(),
    };
    Report {
        repeat_with: "again".to_owned(),
        environment,
        rounds: 3,
        elapsed_s: 60.0,
        interrupted: false,
        absent: vec![UnmeasuredCase { case: "go-http-1".to_owned(), why: "not installed: go".to_owned() }],
        pairs,
        failures: Vec::new(),
    }
}

#[test]
fn accounts_count_and_name_the_worst() {
    let same = sample("halt", 100.0, seen(1300, 130, 54_000, Some(0)));
    let quiet = pair(
        "compute",
        "haltpoll:200us",
        &same,
        &sample("haltpoll:200us", 100.0, seen(1300, 130, 54_000, None)),
    );
    let report = report(vec![quiet, convoy()]);
    let account = |signal, difference| {
        report.accounts().into_iter().find(|a| a.signal == signal && a.difference == difference).unwrap()
    };
    let work = account(Signal::WorkTime, Difference::Retention);
    assert_eq!((work.right, work.wrong, work.silent, work.decides), (1, 1, 0, 2));
    assert_eq!(work.worst, ["convoy, haltpoll:200us", "compute, haltpoll:200us"]);
    assert_eq!(work.wrong_decisions, ["convoy, haltpoll:200us"]);
    assert!((work.median_error.unwrap() * 2.0 - work.worst_error.unwrap()).abs() < 1e-9, "{work:?}");
    assert_eq!(account(Signal::Handoffs, Difference::Retention).silent, 2);
    assert_eq!(account(Signal::WorkTime, Difference::ActiveSet).silent, 0, "there is no such pair");
    assert!(report.accounts().iter().all(|a| a.signal != Signal::Counter));
}

#[test]
fn the_page_has_accounts_findings_and_a_row_for_each_pair() {
    let page = report(vec![convoy()]).markdown();
    let has = |text: &str| assert!(page.contains(text), "{text} is not in:\n{page}");
    has(
        "| CPU time of the workload | retention | 0 | 1 | 0 | 0 | 0 | 1 | 1 | 0.45 | 0.45 | convoy, haltpoll:200us |",
    );
    has(
        "- **CPU time of the workload**, retention: wrong in 1 of the 1 pairs in which it decides: convoy, haltpoll:200us \
         (it said 1.10, progress is 0.70 [0.70, 0.70]).",
    );
    has("| convoy | haltpoll:200us | 0.70 [0.70, 0.70] | lower | - |");
    has(" | **1.10** wrong | ");
    has("Every closed loop has a difference.");
    has("Not measured: go-http-1: not installed: go");
    let quiet = report(Vec::new()).markdown();
    assert!(quiet.contains("No signal was wrong where it decides."), "{quiet}");
}
