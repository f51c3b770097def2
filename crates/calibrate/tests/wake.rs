//! Measures wake-ups on the machine that runs the tests. Timing depends on the machine; these tests check
//! that samples are consistent and that every measurement ends in time.

#![allow(clippy::unwrap_used, clippy::similar_names, reason = "tests")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gleaner_calibrate::wake::{Case, MatrixPlan, Plan, WakeError, WakeSamples, matrix, measure};
use gleaner_policy::{CpuId, Method};

/// Held during each measurement, since concurrent ones would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

const BUDGET: Duration = Duration::from_millis(100);
/// Far longer than a shared machine stalls: a thread that waits this long has lost a wake-up.
const LONG: Duration = Duration::from_secs(60);

/// The first and the last vCPU that this process may use; the same one if there is only one.
fn pair() -> (CpuId, CpuId) {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let cpus: Vec<u32> = (0..1024).filter(|n| set.is_set(*n as usize).unwrap()).collect();
    (CpuId(cpus[0]), CpuId(cpus[cpus.len() - 1]))
}

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn plan() -> Plan {
    let (waker, wakee) = pair();
    Plan { budget: BUDGET, timeout: LONG, ..Plan::new(waker, wakee) }
}

fn assert_consistent(samples: &WakeSamples) {
    assert!(samples.n() > 0);
    assert!(samples.min() > Duration::ZERO);
    assert!(samples.min() <= samples.median() && samples.median() <= samples.p99());
    assert!(samples.waker_cpu() > Duration::ZERO);
    assert_eq!(samples.latencies().len(), samples.n());
}

/// Thread 0 makes the first hand-off without being woken, and the last one finds the game over.
fn assert_rounds(samples: &WakeSamples, rounds: u64) {
    let hand_offs = samples.n() as u64 + samples.misses();
    assert!((2 * rounds - 2..=2 * rounds).contains(&hand_offs), "{hand_offs}");
}

#[test]
fn every_setting_gives_samples_and_stops_after_the_rounds() {
    let _alone = alone();
    for case in Case::ALL {
        let samples = case.measure(&Plan { rounds: 50, budget: LONG, ..plan() }).unwrap();
        eprintln!("{} {case}: {:?}", case.letter(), samples.summary());
        assert_consistent(&samples);
        assert_rounds(&samples, 50);
    }
}

/// Threads that did not end would be reported as starved.
#[test]
fn every_setting_stops_after_the_budget() {
    let _alone = alone();
    for case in Case::ALL {
        // If the machine stalled all the time, nobody was woken.
        let result = case.measure(&plan());
        assert!(matches!(result, Ok(_) | Err(WakeError::NoWake { .. })), "{case}: {result:?}");
    }
}

#[test]
fn the_sleep_before_a_wake_up_lasts_for_the_gap() {
    let _alone = alone();
    let gap = Duration::from_millis(2);
    let started = Instant::now();
    let samples = measure(&Plan { rounds: 10, gap, budget: LONG, ..plan() }).unwrap();
    assert_consistent(&samples);
    assert!(started.elapsed() >= gap * 19);
}

#[test]
fn names_a_vcpu_that_is_not_there() {
    let _alone = alone();
    let error = measure(&Plan { wakee: CpuId(1000), ..plan() }).unwrap_err();
    assert!(matches!(error, WakeError::Affinity { cpu: CpuId(1000), .. }), "{error}");
    assert!(error.to_string().contains("vCPU 1000"), "{error}");
    let error = Case::Awake.measure(&Plan { wakee: CpuId(1000), ..plan() }).unwrap_err();
    assert!(matches!(error, WakeError::Affinity { cpu: CpuId(1000), .. }), "{error}");
}

#[test]
fn the_matrix_interleaves_methods_and_leaves_out_what_is_not_there() {
    let _alone = alone();
    let methods = vec![Method::Halt, Method::Haltpoll, Method::Yield];
    let plan = MatrixPlan {
        budget: 60 * LONG,
        blocks: 2,
        block: LONG,
        rounds: 50,
        timeout: LONG,
        ..MatrixPlan::new(vec![pair()], methods)
    };
    let mut asked = Vec::new();
    let cells = matrix(&plan, |method| {
        asked.push(method);
        Ok(method != Method::Haltpoll)
    })
    .unwrap();
    let (halt, haltpoll, yielding) = (Method::Halt, Method::Haltpoll, Method::Yield);
    assert_eq!(asked, [halt, haltpoll, yielding, haltpoll, yielding, halt]);
    let found: Vec<_> = cells.iter().map(|cell| (cell.case, cell.method)).collect();
    let expected: Vec<_> = Case::ALL.into_iter().flat_map(|case| [(case, halt), (case, yielding)]).collect();
    assert_eq!(found, expected);
    for cell in &cells {
        assert_consistent(&cell.samples);
        let hand_offs = cell.samples.n() as u64 + cell.samples.misses();
        assert!((2 * 98..=2 * 100).contains(&hand_offs), "{hand_offs} in two blocks of 50 rounds");
    }
}

#[test]
fn a_gap_longer_than_the_budget_does_not_hold_the_measurement_up() {
    let _alone = alone();
    let started = Instant::now();
    let result = measure(&Plan { gap: LONG, ..plan() });
    assert!(matches!(result, Err(WakeError::NoWake { misses: 0, .. })), "{result:?}");
    assert!(started.elapsed() < LONG, "it sat out the gap");
}

#[test]
fn the_matrix_passes_on_why_a_method_cannot_be_switched() {
    let plan = MatrixPlan::new(vec![pair()], vec![Method::QosPoll]);
    let error = matrix(&plan, |_| Err("read-only file system".into())).unwrap_err().to_string();
    assert!(error.contains("qos-poll") && error.contains("read-only file system"), "{error}");
}
