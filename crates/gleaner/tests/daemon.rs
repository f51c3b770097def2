//! The pages of the commands that talk to the daemon, beside a small one that says always the same. What they have the
//! daemon do is tested beside gleanerd itself (`gleanerd.rs`).

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;
#[path = "../../control/tests/common/mod.rs"]
mod daemon;

use std::process::{Command, Output};

use common::process::{GLEANER, text};
use common::terminal::Terminal;
use daemon::{Daemon, Setup, status};
use gleaner_control::{Mode, State};
use serde_json::Value;

/// The command with these arguments, beside `daemon`.
fn command(daemon: &Daemon, args: &[&str]) -> Command {
    let mut command = Command::new(GLEANER);
    command.args(args).env("GLEANER_CONTROL", &daemon.path);
    command
}

fn ask(daemon: &Daemon, args: &[&str]) -> Output {
    command(daemon, args).output().unwrap()
}

#[track_caller]
fn succeeds(daemon: &Daemon, args: &[&str]) -> String {
    let output = ask(daemon, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{args:?}");
    text(&output.stdout)
}

#[track_caller]
fn json(daemon: &Daemon, args: &[&str]) -> Value {
    let value: Value = serde_json::from_str(&succeeds(daemon, args)).unwrap();
    assert_eq!(value["version"], 1);
    value
}

#[track_caller]
fn fails(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn status_is_a_page_and_json() {
    let daemon = Daemon::start();
    insta::assert_snapshot!("status", succeeds(&daemon, &["status"]));
    assert_eq!(json(&daemon, &["status", "--json"])["status"], serde_json::to_value(status()).unwrap());
}

#[test]
fn status_of_a_machine_with_much_and_of_one_with_nothing() {
    let mut many = status();
    many.workloads.truncate(1);
    for n in 0..40u32 {
        let mut watched = many.workloads[0].clone();
        watched.name = format!("service-{n:02}");
        (watched.state, watched.stake, watched.active) = (State::Watched, None, None);
        (watched.reason, watched.evidence) = (None, None);
        many.workloads.push(watched);
    }
    let daemon = Daemon::with(Setup { status: many, ..Setup::default() });
    let page = succeeds(&daemon, &["status"]);
    assert!(page.contains("service-04") && !page.contains("service-05"), "{page}");
    assert!(page.contains("and 35 more that are only watched: --all lists them"), "{page}");
    assert!(succeeds(&daemon, &["status", "--all"]).contains("service-39"));
    let mut none = status();
    (none.mode, none.mode_reason) = (Mode::QuietHours, Some("22:00 to 06:00".to_owned()));
    none.workloads.clear();
    none.decisions.clear();
    none.limits.clear();
    none.leases = 0;
    let daemon = Daemon::with(Setup { status: none, ..Setup::default() });
    insta::assert_snapshot!("status-nothing", succeeds(&daemon, &["status"]));
}

#[test]
fn why_is_about_the_daemons_workloads() {
    let daemon = Daemon::start();
    let story = succeeds(&daemon, &["why"]);
    assert!(story.starts_with("`redis-server` on vCPUs 0-1, started 2023-11-14"), "{story}");
    assert!(story.ends_with("2023-11-14 22:13:20, at 0.003 s: note 3\n"), "{story}");
    assert_eq!(succeeds(&daemon, &["why", "redis-server"]), story);
    assert!(!succeeds(&daemon, &["why", "--since", "10min"]).contains("note 1"));
    let report = json(&daemon, &["why", "--json"]);
    assert_eq!(report["workloads"][0]["workload"], "redis-server");
    assert_eq!(report["workloads"][0]["story"][1]["text"], "note 1");
    let wrong = fails(&ask(&daemon, &["why", "redis"]));
    assert_eq!(wrong, "gleaner: there is no workload `redis`; did you mean `redis-server`?\n");
    let idle = fails(&ask(&daemon, &["why", "idle"]));
    assert_eq!(idle, "gleaner: nothing is recorded yet: no workload has been engaged\n");
    // A path is a journal, whatever runs.
    assert!(fails(&ask(&daemon, &["why", "/nowhere/journal"])).contains("cannot read /nowhere/journal"));
    assert_eq!(ask(&daemon, &["why", "--since", "soon"]).status.code(), Some(2));
}

#[test]
fn why_also_says_why_a_workload_that_was_engaged_is_not_any_more() {
    let mut released = status();
    let workload = released.workloads.iter_mut().find(|w| w.name == "redis-server").unwrap();
    (workload.state, workload.reason) = (State::LeftAlone, Some("detached".to_owned()));
    let daemon = Daemon::with(Setup { status: released, ..Setup::default() });
    let story = succeeds(&daemon, &["why", "redis-server"]);
    let (before, last) = story.trim_end().rsplit_once('\n').unwrap();
    assert!(before.ends_with("note 3"), "{story}");
    assert_eq!(last, "`redis-server` is left alone: detached");
    let report = json(&daemon, &["why", "redis-server", "--json"]);
    assert_eq!(report["workloads"][0]["story"].as_array().unwrap().last().unwrap()["text"], last);
}

#[test]
fn top_shows_the_daemons_workloads_on_a_terminal() {
    let daemon = Daemon::start();
    let environment = [("GLEANER_CONTROL", daemon.path.to_str().unwrap())];
    let mut top = Terminal::start(&["top", "--no-trace", "--interval", "0.1"], &environment, (24, 80));
    top.until_shows("redis-server             engaged     0 of 2          45120     0.82  helped");
    for part in
        ["gleanerd, 3 h 12 min: running", "polling 3.1 % of the time", "  on trial: vCPUs 0 with", "batch"]
    {
        top.until_shows(part);
    }
    daemon.client().pause(Some("a test".to_owned())).unwrap();
    top.until_shows("paused, nothing is in force: a test");
    daemon.stop();
    top.until("the daemon is gone", |screen| !screen.contents().contains("gleanerd, 3 h"));
    top.press("q");
    assert!(top.ends_and_restores().success());
}

#[test]
fn top_reports_the_daemon_as_json() {
    let daemon = Daemon::start();
    let report = json(&daemon, &["top", "--once", "--json", "--no-trace", "--interval", "0.05"]);
    assert_eq!(report["daemon"]["workloads"][0]["name"], "redis-server");
    assert_eq!((&report["vcpus"][0]["active"], &report["journal"]), (&Value::Bool(true), &Value::Null));
    assert!(report["decisions"][0]["text"].as_str().unwrap().starts_with("4 s ago, mariadb: tested"));
}

#[test]
fn without_a_daemon_each_command_says_how_to_start_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    for args in [&["status"][..], &["detach", "x"], &["pause"], &["resume"], &["reload"]] {
        let output = Command::new(GLEANER).args(args).env("GLEANER_CONTROL", &path).output().unwrap();
        let said = fails(&output);
        assert!(
            said.contains("gleanerd is not running") && said.contains("systemctl start gleanerd"),
            "{said}"
        );
    }
    let output = Command::new(GLEANER).arg("status").env("GLEANER_CONTROL", "").output().unwrap();
    assert!(fails(&output).contains("GLEANER_CONTROL is empty"));
    let name = Command::new(GLEANER).args(["why", "no-such"]).env("GLEANER_CONTROL", &path).output().unwrap();
    assert!(
        fails(&name).contains(
            "there is no file `no-such`, and gleanerd, which would know a workload, is not running"
        )
    );
}
