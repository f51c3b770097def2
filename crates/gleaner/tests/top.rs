//! `gleaner top` on a terminal and without one, alone and beside a run.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use common::levers::Machine;
use common::process::{Running, command, gleaner, text, until};
use common::terminal::Terminal;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Without tracing, which these tests do not need.
const PLAIN: [&str; 4] = ["top", "--no-trace", "--interval", "0.1"];
const SIZE: (u16, u16) = (24, 80);

/// The JSON that `top --once` prints.
fn once(more: &[&str]) -> Value {
    let mut args = vec!["top", "--once", "--json", "--interval", "0.2"];
    args.extend(more);
    let output = gleaner(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A run that holds one setting, with one active vCPU, until its input ends.
fn held(more: &[&str]) -> Running {
    let args = [&["run", "--quiet", "--fixed", "consolidate:1"], more, &["--", "cat"]].concat();
    Running::start(&mut command(&args))
}

/// Waits until the run's command answers.
#[track_caller]
fn await_answer(run: &mut Running) {
    run.send("ready");
    assert_eq!(run.line(), "ready");
}

/// Ends the run, checks that `top` shows it, and quits.
#[track_caller]
fn end_both(run: Running, mut top: Terminal, machine: &Machine) {
    assert!(run.finish().status.success());
    top.until_shows("ended, everything was put back");
    top.press("q");
    assert!(top.ends_and_restores().success());
    machine.assert_untouched();
}

#[test]
fn draws_follows_keys_and_restores_the_terminal() {
    let mut top = Terminal::start(&PLAIN, &[], SIZE);
    // Once everything is drawn the cursor is hidden.
    top.until("it has drawn", |screen| screen.alternate_screen() && screen.hide_cursor());
    let shown = top.screen().contents();
    assert!(shown.starts_with("gleaner top: "), "{shown}");
    for part in
        ["vCPU state", "polling", "IPIs/s", "Decisions, newest first", "q quit", "not traced, as asked for"]
    {
        assert!(shown.contains(part), "no `{part}` in\n{shown}");
    }
    // Rates need two samples.
    top.until("vCPUs have rates", |screen| {
        let all = screen.contents().lines().find(|line| line.starts_with("all ")).map(str::to_owned);
        all.is_some_and(|all| !all.contains(" - "))
    });
    top.press("p");
    top.until_shows("PAUSED");
    top.press("p");
    top.until("it goes on", |screen| !screen.contents().contains("PAUSED"));
    top.resize(40, 120);
    top.until("the keys are at the new bottom", |screen| {
        let rows: Vec<String> = screen.rows(0, 120).collect();
        rows[39].starts_with("q quit") && rows.iter().any(|row| row.contains("timer/s"))
    });
    top.press("q");
    assert_eq!(top.ends_and_restores().code(), Some(0));
}

#[test]
fn signals_end_it_in_order() {
    for (signal, status) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGINT, 130)] {
        let mut top = Terminal::start(&PLAIN, &[], SIZE);
        top.until_shows("q quit");
        top.signal(signal);
        assert_eq!(top.ends_and_restores().code(), Some(status), "{signal}");
    }
    let mut top = Terminal::start(&PLAIN, &[], SIZE);
    top.until_shows("q quit");
    // Ctrl-C arrives as a key.
    top.press("\x03");
    assert_eq!(top.ends_and_restores().code(), Some(0));
}

#[test]
fn colours_are_not_used_where_they_are_not_wanted() {
    let coloured = |screen: &vt100::Screen| {
        let (rows, columns) = screen.size();
        let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        cells
            .filter_map(|(row, column)| screen.cell(row, column))
            .any(|cell| cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default)
    };
    for (no_color, wanted) in [("", true), ("1", false)] {
        let mut top = Terminal::start(&PLAIN, &[("NO_COLOR", no_color)], SIZE);
        top.until_shows("q quit");
        top.press("p");
        top.until_shows("PAUSED");
        assert_eq!(coloured(top.screen()), wanted, "NO_COLOR={no_color}");
        top.press("q");
        assert!(top.ends_and_restores().success());
    }
}

#[test]
fn names_the_workload_and_its_setting_beside_a_run() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let follow = ["--journal", journal.to_str().unwrap()];
    let mut run = held(&follow);
    await_answer(&mut run);
    until("the journal shows the run", || {
        let report = once(&follow);
        report["workloads"][0]["status"] == "running" && report["vcpus"][0]["active"] == true
    });
    let report = once(&follow);
    let workload = &report["workloads"][0];
    assert_eq!(workload["name"], "cat");
    assert_eq!(workload["gleaner_pid"], run.pid());
    assert_eq!((&workload["active"], &workload["method"]), (&Value::from("0"), &Value::from("halt")));
    assert_eq!(workload["setting"], "vCPUs 0 with halt");
    let vcpus = report["vcpus"].as_array().unwrap();
    assert!(vcpus.iter().skip(1).all(|vcpu| vcpu["active"] == false), "{report:#}");
    assert_eq!(report["journal"], Value::Null);
    // Tests and this program wake each other.
    assert_eq!(report["wakes"]["state"], "traced", "{report:#}");
    let kinds = report["wakes"]["kinds"].as_array().unwrap();
    assert!(kinds.iter().any(|kind| kind["p50_us"].as_f64().is_some_and(|us| us > 0.0)), "{report:#}");

    let mut top = Terminal::start(&[&PLAIN[..], &follow].concat(), &[], SIZE);
    top.until_shows("running, gleaner is pid");
    top.until_shows("active vCPUs 0, inactive");
    end_both(run, top, &machine);
}

#[test]
fn follows_the_run_that_names_no_journal_and_takes_no_lock() {
    let Some(machine) = Machine::take() else { return };
    // It samples all the while, and the run is not refused.
    let mut top = Terminal::start(&PLAIN, &[], SIZE);
    top.until_shows("q quit");
    let mut run = held(&[]);
    top.until_shows("running, gleaner is pid");
    await_answer(&mut run);
    end_both(run, top, &machine);
}

#[test]
fn is_text_without_a_terminal() {
    let output = gleaner(&["top", "--once", "--no-trace", "--interval", "0.05"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = text(&output.stdout);
    assert!(report.starts_with("gleaner top: ") && report.contains("\nall "), "{report}");
    assert!(!report.contains('\x1b') && !report.contains("q quit"), "{report}");
}

#[test]
fn wrong_use_is_an_error_that_says_what_to_do() {
    let output = gleaner(&["top", "--no-trace"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("use --once"), "{}", text(&output.stderr));
    for args in [&["top", "--json"][..], &["top", "--pid", "1", "--no-trace"], &["top", "--interval", "0"]] {
        assert_eq!(gleaner(args).status.code(), Some(2), "{args:?}");
    }
    let output = gleaner(&["top", "--once", "--pid", "4000000"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("4000000"), "{}", text(&output.stderr));
}

#[test]
fn a_journal_that_cannot_be_understood_is_reported_on_the_screen() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    std::fs::write(&journal, "nonsense\n").unwrap();
    let report = once(&["--no-trace", "--journal", journal.to_str().unwrap()]);
    assert!(report["journal"].as_str().unwrap().contains("line 1 is not a journal record"), "{report:#}");
    assert!(report["vcpus"][0]["busy"].is_number(), "the rest is reported all the same: {report:#}");
}
