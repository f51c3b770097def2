//! `gleaner-bench signals` with the real `gleaner`. It is in this package because a test can only refer to binaries of
//! its own package, and `gleaner` is the one that changes the machine.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::levers::Machine;
use common::process::{GLEANER, Running, text, until};
use gleaner_bench::signals::{Report, Side, Verdict};
use gleaner_policy::{Difference, Signal};
use gleaner_testing::skipped;
use nix::sys::signal::Signal::SIGTERM;

/// `gleaner-bench signals`; `None`, with a message, if that binary is not built beside this package's.
fn signals(only: &str, dir: &Path) -> Option<(Command, PathBuf, PathBuf)> {
    let bench = Path::new(GLEANER).with_file_name("gleaner-bench");
    if !bench.is_file() {
        skipped("needs `cargo build -p gleaner-bench`");
        return None;
    }
    let (json, markdown) = (dir.join("signals.json"), dir.join("signals.md"));
    let mut command = Command::new(bench);
    command.args(["signals", "--rounds", "1", "--only", only, "--gleaner", GLEANER]).env("TMPDIR", dir);
    command.arg("--output").arg(&json).arg("--markdown").arg(&markdown);
    Some((command, json, markdown))
}

fn report(json: &Path) -> Report {
    serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap()
}

/// On which side of the range from `low` to `high` a ratio lies.
fn side(ratio: f64, high: f64, low: f64) -> Side {
    match ratio {
        r if r > high => Side::Higher,
        r if r < low => Side::Lower,
        _ => Side::Same,
    }
}

#[test]
fn two_cases_are_measured_and_judged() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some((mut command, json, markdown)) = signals("request-response,compute threads=1", dir.path())
    else {
        return;
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = report(&json);
    assert!(!report.interrupted && report.failures.is_empty() && report.absent.is_empty(), "{report:?}");
    let pairs: Vec<_> = report.pairs.iter().map(|p| (p.case.as_str(), p.setting.as_str())).collect();
    let settings = ["haltpoll:200us", "yield:200us", "consolidate:1"];
    let of_case = |case| settings.map(|setting| (case, setting));
    assert_eq!(pairs, [of_case("request-response"), of_case("compute threads=1")].concat());
    for pair in &report.pairs {
        let consolidated = pair.setting == "consolidate:1";
        assert_eq!(pair.difference == Difference::ActiveSet, consolidated, "{}", pair.name());
        assert!(pair.rounds.iter().all(|(b, c)| b.rate > 0.0 && c.rate > 0.0), "{pair:?}");
        let handoffs = pair.signals.iter().find(|said| said.signal == Signal::Handoffs).unwrap();
        assert!(consolidated || handoffs.verdict == Some(Verdict::Silent), "{pair:?}");
    }
    // The gain from consolidation depends on the host. The verdict must follow from the rates and the bytes.
    let consolidated = &report.pairs[2];
    let moved = consolidated.signals.iter().find(|said| said.signal == Signal::Moved).unwrap();
    assert!(moved.decides, "{moved:?}");
    let [(untouched, one)] = &consolidated.rounds[..] else { panic!("{consolidated:?}") };
    let progress = one.rate / untouched.rate;
    let bytes = Signal::Moved.log_ratio(&untouched.interval.seen, &one.interval.seen).unwrap();
    // Rates that differ by less than this count as the same.
    let truth = side(progress, 1.02, 1.0 / 1.02);
    let margin = Signal::Moved.margin();
    let shown = side(bytes.exp(), 1.0 + margin, 1.0 - margin);
    let verdict = match (shown, truth) {
        (shown, truth) if shown == truth => Verdict::Right,
        (Side::Same, _) if side(progress, 1.0 + margin, 1.0 - margin) == Side::Same => Verdict::Right,
        (Side::Same, _) => Verdict::Missed,
        (Side::Higher, Side::Same) if bytes.exp() <= progress => Verdict::Unclear,
        (Side::Lower, Side::Same) if bytes.exp() >= progress => Verdict::Unclear,
        _ => Verdict::Wrong,
    };
    assert_eq!((consolidated.progress.side, moved.verdict), (truth, Some(verdict)), "{consolidated:?}");
    let size_error = (bytes - progress.ln()).abs();
    assert!((moved.size_error.unwrap() - size_error).abs() < 1e-9, "{size_error}: {moved:?}");
    let page = fs::read_to_string(&markdown).unwrap();
    for columns in [
        "| signal | difference | right | wrong | missed | unclear | silent | decides |",
        "| case | setting | progress | is | speed of answers | bytes sent through sockets | bytes read and written |",
        "| compute threads=1 | consolidate:1 |",
    ] {
        assert!(page.contains(columns), "{columns} is not in:\n{page}");
    }
    machine.assert_untouched();
}

#[test]
fn an_interrupted_run_stops_everything_and_writes_what_it_has() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some((mut command, json, _)) = signals("compute,matmul,barrier", dir.path()) else { return };
    let mut running = Running::start(&mut command);
    until("the first cell to run", || {
        let mut found = fs::read_dir(dir.path()).unwrap().flatten();
        found.any(|entry| entry.path().join("output").exists())
    });
    running.signal(SIGTERM);
    assert_eq!(running.wait().code(), Some(143));
    assert!(report(&json).interrupted);
    machine.assert_untouched();
}

#[test]
fn an_unknown_case_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let Some((mut command, ..)) = signals("mongo", dir.path()) else { return };
    let output = command.output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("unknown case `mongo`; choose from: request-response, "), "{stderr}");
}
