//! The stepping load as a program, alone and with a stand-in for Gleaner.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::process::Command;
use std::time::Duration;

use gleaner_bench::steps::{PAIRS, Plan, Recording, Report, analyse, run_load};

#[path = "common/stand_in.rs"]
mod stand_in;

fn bench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gleaner-bench"))
}

/// The requests between the first sample and the last one of each phase.
fn requests(recording: &Recording) -> Vec<u64> {
    let starts = recording.phases.iter().map(|phase| phase.at_ns);
    let ends = starts.clone().skip(1).chain([recording.end_ns]);
    let done_in = |(from, to): (u64, u64)| {
        let mut inside = recording.samples.iter().filter(|s| (from..=to).contains(&s.at_ns));
        let (first, last) = (inside.next().unwrap(), inside.next_back().unwrap());
        last.requests - first.requests
    };
    starts.zip(ends).map(done_in).collect()
}

#[test]
fn the_load_steps_up_and_down_and_counts() {
    let phase = Duration::from_millis(200);
    let recording = run_load(&Plan { least: Some(10), ..Plan::even(1, phase) }).unwrap();
    let pairs: Vec<usize> = recording.phases.iter().map(|phase| phase.pairs).collect();
    assert_eq!(pairs, [1, PAIRS, 1]);
    let changes: Vec<u64> = recording.phases.iter().map(|p| p.at_ns).chain([recording.end_ns]).collect();
    assert!(changes.windows(2).all(|p| Duration::from_nanos(p[1] - p[0]) >= phase), "{changes:?}");
    assert!(recording.phases.iter().all(|p| p.allowed_before > 0));
    // Half of the pairs would suffice for that.
    let high = recording.phases[1];
    assert!(high.all_ran_ns.is_some_and(|at| at >= high.at_ns && at <= recording.end_ns), "{high:?}");
    let samples = &recording.samples;
    assert!(samples.windows(2).all(|p| p[0].at_ns < p[1].at_ns && p[0].requests <= p[1].requests));
    assert!(samples.last().unwrap().at_ns >= recording.end_ns);
    let requests = requests(&recording);
    assert!(requests.iter().all(|&requests| requests >= 10), "a phase stood still: {requests:?}");
}

#[test]
fn both_runs_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (gleaner, file) = (dir.path().join("gleaner"), dir.path().join("steps.json"));
    stand_in::plain_gleaner(&gleaner).unwrap();
    let output = bench()
        .args(["steps", "--steps", "1", "--gleaner"])
        .arg(&gleaner)
        .arg("--output")
        .arg(&file)
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    assert!(stdout.contains("1->16  gleaner") && stdout.contains("16->1  gleaner"), "{stdout}");
    let report: Report = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(report.to_string(), stdout);
    for run in [&report.default, &report.gleaner] {
        assert_eq!(run.steps.iter().map(|step| step.pairs).collect::<Vec<_>>(), [PAIRS, 1]);
        assert_eq!(run.steps, analyse(&run.recording));
        let requests = requests(&run.recording);
        assert!(requests.iter().all(|&requests| requests > 0), "a phase stood still: {requests:?}");
    }
}

#[test]
fn what_cannot_run_is_named() {
    let output = bench().args(["steps", "--gleaner", "/nonexistent/gleaner"]).output().unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("/nonexistent/gleaner"), "{stderr}");
}
