//! Every built-in workload, run for a short time. That the self-checks notice wrong results is tested beside
//! each of them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use gleaner_bench::workload::{Outcome, Workload};

const TIME: Duration = Duration::from_millis(100);

fn run(workload: Workload, threads: Option<usize>) -> Outcome {
    let outcome = workload.run(TIME, threads).unwrap();
    eprintln!("{workload}: {:.0} operations/s", outcome.throughput());
    assert!(outcome.operations > 0, "{workload} did nothing");
    assert!(outcome.checks > 0, "{workload} checked nothing");
    assert!(outcome.elapsed >= TIME, "{workload} ended after {:?}", outcome.elapsed);
    assert!(outcome.elapsed < 10 * TIME, "{workload} ended after {:?}", outcome.elapsed);
    outcome
}

#[test]
fn every_workload_runs_and_its_check_holds() {
    for workload in Workload::ALL {
        run(workload, None);
    }
}

#[test]
fn every_workload_runs_with_few_and_with_many_threads() {
    for workload in Workload::ALL {
        for threads in [0, 1, 7] {
            run(workload, Some(threads));
        }
    }
}

#[test]
fn no_time_is_hardly_any_work() {
    for workload in Workload::ALL {
        let outcome = workload.run(Duration::ZERO, None).unwrap();
        assert!(outcome.operations <= 1, "{workload}: {}", outcome.operations);
    }
}

#[test]
fn throughput_is_operations_per_second() {
    let outcome = Outcome { operations: 50, elapsed: Duration::from_millis(200), checks: 1 };
    assert!((outcome.throughput() - 250.0).abs() < 1e-9);
    assert!(Outcome { elapsed: Duration::ZERO, ..outcome }.throughput().abs() < 1e-9);
}

#[test]
fn outcomes_and_names_survive_a_round_trip() {
    let outcome = Outcome { operations: 50, elapsed: Duration::from_millis(200), checks: 1 };
    let json = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), outcome);
    for workload in Workload::ALL {
        assert_eq!(workload.name().parse::<Workload>().unwrap(), workload);
        assert_eq!(serde_json::to_string(&workload).unwrap(), format!("\"{workload}\""));
        assert!(workload.about().contains("one operation is"));
    }
    assert!("ferret".parse::<Workload>().unwrap_err().contains("request-response"));
}
