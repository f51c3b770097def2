//! Signals to `gleaner workload`, which becomes `gleaner-bench`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use common::process::Running;
use gleaner_bench::workload::{Outcome, Workload};
use nix::sys::signal::Signal;

#[test]
fn a_signal_ends_every_workload_before_its_time_and_it_says_what_it_did() {
    for workload in Workload::ALL {
        let running = Running::start_workload(&["--json", workload.name(), "--seconds", "60"]);
        running.signal(Signal::SIGTERM);
        let output = running.finish();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{workload}: {}: {error}", output.status);
        let outcome: Outcome = serde_json::from_slice(&output.stdout).unwrap();
        assert!(outcome.elapsed < Duration::from_secs(60), "{workload}: {outcome:?}");
    }
}

#[test]
fn a_signal_leaves_no_half_of_a_number_of_operations() {
    let running = Running::start_workload(&["--json", "compute", "--operations", "1000000000000"]);
    running.signal(Signal::SIGTERM);
    let output = running.finish();
    assert_eq!(output.status.signal(), Some(Signal::SIGTERM as i32));
    assert_eq!(output.stdout, b"");
}
