//! `gleaner diagnose` on the built-in workloads, each of which has one cause. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use serde_json::Value;

use common::levers::Machine;
use common::process::{GLEANER, gleaner, text};

/// The report on a built-in workload; `None` where none can be made.
fn diagnose(workload: &[&str]) -> Option<Value> {
    let machine = Machine::take()?;
    let mut args = vec!["diagnose", "--json", "--seconds", "2", "--", GLEANER, "workload"];
    args.extend(workload);
    args.extend(["--seconds", "60"]);
    let output = gleaner(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    machine.assert_untouched();
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn verdict(report: &Value) -> &str {
    report["verdict"].as_str().unwrap_or("none")
}

/// For a failure: every cause with what it costs.
fn told(report: &Value) -> String {
    let causes = report["causes"].as_array().unwrap().iter();
    let lines = causes.map(|c| format!("{} {} us/s: {}", c["kind"], c["lost_us_per_second"], c["estimate"]));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn requests_and_replies_are_blocking_synchronisation() {
    let Some(report) = diagnose(&["request-response"]) else { return };
    assert_eq!(verdict(&report), "hlt", "{}", told(&report));
    let cause = &report["causes"][0];
    assert!(cause["per_second"].as_f64().unwrap() > 1000.0, "{}", told(&report));
    assert!(cause["behind"][0].as_str().unwrap().contains("wakes"), "{cause}");
    assert!(cause["advice"][0].as_str().unwrap().contains("gleaner run"));
}

#[test]
fn a_convoy_is_blocking_synchronisation() {
    let Some(report) = diagnose(&["convoy"]) else { return };
    // Which part of it depends on whether the waiter's vCPU has halted yet when the lock is free again.
    assert!(["hlt", "ipi"].contains(&verdict(&report)), "{}", told(&report));
}

#[test]
fn computation_has_no_cause() {
    let Some(report) = diagnose(&["compute", "--threads", "1"]) else { return };
    assert_eq!(verdict(&report), "none", "{}", told(&report));
}

#[test]
fn changes_of_an_address_space_are_tlb_shootdowns() {
    let Some(report) = diagnose(&["tlb"]) else { return };
    assert_eq!(verdict(&report), "tlb-shootdown", "{}", told(&report));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_barrier_in_user_mode_is_user_level_spinning() {
    let threads = (2 * std::thread::available_parallelism().unwrap().get()).to_string();
    let Some(report) = diagnose(&["user-spin-barrier", "--threads", &threads]) else { return };
    assert_eq!(verdict(&report), "user-spinning", "{}", told(&report));
}

#[test]
fn a_command_that_fails_passes_its_status_on_and_is_still_reported() {
    let Some(_machine) = Machine::take() else { return };
    let output = gleaner(&["diagnose", "--", "sh", "-c", "echo said; exit 9"]);
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    // The command's output is not the report.
    assert_eq!(text(&output.stderr), "said\n");
    assert!(text(&output.stdout).contains("Wake-up until run"), "{}", text(&output.stdout));
}

#[test]
fn what_cannot_be_watched_is_an_error() {
    let Some(_machine) = Machine::take() else { return };
    for (args, named) in [
        (vec!["diagnose", "--pid", "4000000"], "4000000"),
        (vec!["diagnose", "--cgroup", "/nowhere"], "/nowhere"),
        (vec!["diagnose", "--", "/nowhere/at-all"], "/nowhere/at-all"),
    ] {
        let output = gleaner(&args);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(named), "{}", text(&output.stderr));
    }
    assert_eq!(gleaner(&["diagnose"]).status.code(), Some(2));
    assert_eq!(gleaner(&["diagnose", "--system", "--pid", "1"]).status.code(), Some(2));
}
