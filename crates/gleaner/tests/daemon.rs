//! The commands that talk to the daemon, beside a small one that does what it is asked.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;
#[path = "../../control/tests/common/mod.rs"]
mod daemon;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use common::process::{GLEANER, Running, text};
use common::terminal::Terminal;
use daemon::{Daemon, Setup, status};
use gleaner_control::{Mode, State};
use nix::sys::signal::Signal;
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
fn pause_resume_reload_and_detach() {
    let daemon = Daemon::start();
    let paused = succeeds(&daemon, &["pause", "--reason", "a test"]);
    assert_eq!(paused, "paused: nothing is in force any more; `gleaner resume` ends that\n");
    assert!(succeeds(&daemon, &["status"]).contains("paused, nothing is in force: a test"));
    assert_eq!(json(&daemon, &["pause", "--json"])["mode"], "paused");
    assert_eq!(succeeds(&daemon, &["resume"]), "resumed; running\n");
    assert_eq!(json(&daemon, &["resume", "--json"])["mode"], "running");
    let wrong = fails(&ask(&daemon, &["reload"]));
    assert_eq!(wrong, "gleaner: /etc/gleaner/gleaner.toml: line 3: `objektive` is not a key\n");
    let wrong = fails(&ask(&daemon, &["detach", "x"]));
    assert_eq!(wrong, "gleaner: there is no workload `x`\n");
    assert_eq!(ask(&daemon, &["detach"]).status.code(), Some(2));
}

#[test]
fn why_is_about_the_daemons_workloads() {
    let daemon = Daemon::start();
    let story = succeeds(&daemon, &["why"]);
    assert!(story.starts_with("`redis-server` on vCPUs 0-1, started 2023-11-14"), "{story}");
    assert!(story.ends_with("at 0.003 s: note 3\n"), "{story}");
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
fn forget_asks_the_daemon_that_has_the_memory() {
    if !gleaner_testing::is_root() {
        return;
    }
    let daemon = Daemon::start();
    let forget = |args: &[&str]| command(&daemon, args).env_remove("GLEANER_MEMORY").output().unwrap();
    assert_eq!(text(&forget(&["forget"]).stdout), "forgetting 2 programs\n");
    assert_eq!(text(&forget(&["forget", "redis"]).stdout), "forgetting 1 program\n");
    let report = text(&forget(&["forget", "--json", "b", "a", "b"]).stdout);
    assert_eq!(report, "{\"forgotten\":[\"a\",\"b\"],\"version\":1}\n");
    assert_eq!(daemon.seen().calls["Forget"], 5);
    // Another memory than the daemon's.
    let dir = tempfile::tempdir().unwrap();
    let other = command(&daemon, &["forget"]).env("GLEANER_MEMORY", dir.path()).output().unwrap();
    assert_eq!(text(&other.stdout), "forgetting 0 programs\n");
    assert_eq!(daemon.seen().calls["Forget"], 5);
}

#[test]
fn run_starts_the_command_and_the_daemon_helps_it() {
    if !gleaner_testing::is_root() {
        return;
    }
    let daemon = Daemon::start();
    let output = ask(&daemon, &["run", "--", "sh", "-c", "echo out; sleep 0.2; exit 3"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), "out\n"));
    let account = text(&output.stderr);
    assert!(account.starts_with("gleaner: 3.0 s, 2 changes proven"), "{account}");
    assert!(account.ends_with("gleaner: no control group\n"), "{account}");
    assert_eq!((daemon.seen().calls["Attach"], daemon.seen().attached.len()), (1, 0));
    assert_eq!(text(&ask(&daemon, &["run", "--quiet", "--", "sleep", "0.2"]).stderr), "");
    // The command's own failures are its own, and nobody is attached to.
    let missing = ask(&daemon, &["run", "--", "no-such-command"]);
    assert_eq!(missing.status.code(), Some(127));
    assert_eq!(daemon.seen().calls["Attach"], 2);
}

#[test]
fn run_passes_signals_on() {
    if !gleaner_testing::is_root() {
        return;
    }
    let daemon = Daemon::start();
    let script = "trap 'echo got; exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let mut run = Running::start(&mut command(&daemon, &["run", "--", "sh", "-c", script]));
    assert_eq!(run.line(), "ready");
    daemon.until("it is attached", |seen| seen.attached == ["sh"]);
    run.signal(Signal::SIGTERM);
    let output = run.finish();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(7), "got\n"));
    assert!(text(&output.stderr).contains("changes proven"), "{}", text(&output.stderr));
}

#[test]
fn run_goes_on_without_a_daemon_that_refuses_or_ends() {
    if !gleaner_testing::is_root() {
        return;
    }
    let daemon = Daemon::start();
    let mut first = Running::start(&mut command(&daemon, &["run", "--", "cat"]));
    daemon.until("the first one is attached", |seen| seen.attached == ["cat"]);
    let mut second = Running::start(&mut command(&daemon, &["run", "--", "cat"]));
    second.send("two");
    assert_eq!(second.line(), "two");
    let refused = second.finish();
    assert!(refused.status.success());
    let why = text(&refused.stderr);
    assert!(
        why.contains("runs on without Gleaner: it is controlled already, as the workload `cat`"),
        "{why}"
    );
    let unknown = ask(&daemon, &["run", "--fixed", "halt", "--require", "--", "true"]);
    assert_eq!(unknown.status.code(), Some(125));
    assert!(text(&unknown.stderr).contains("--fixed needs it stopped: `systemctl stop gleanerd`"));
    daemon.stop();
    first.send("one");
    assert_eq!(first.line(), "one");
    let left = first.finish();
    assert!(left.status.success());
    let why = text(&left.stderr);
    assert!(why.contains("runs on without Gleaner: gleanerd closed the connection"), "{why}");
}

#[test]
fn attach_lasts_until_it_is_interrupted() {
    if !gleaner_testing::is_root() {
        return;
    }
    // The small daemon wants a name, which only `run` gives.
    let daemon = Daemon::start();
    let pid = std::process::id().to_string();
    let refused = fails(&ask(&daemon, &["attach", "--pid", &pid]));
    assert_eq!(refused, "gleaner: this test attaches to names only\n");
    let daemon = Daemon::with(Setup { default_name: Some("redis"), ..Setup::default() });
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let attach = Running::start(&mut command(&daemon, &["attach", "--pid", &pid]));
        daemon.until("it is attached", |seen| seen.attached == ["redis"]);
        attach.signal(signal);
        let output = attach.finish();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(said.starts_with("gleaner: gleanerd helps `redis`; Ctrl-C ends that\n"), "{said}");
        assert!(said.contains("gleaner: no control group\ngleaner: 3.0 s, 2 changes proven"), "{said}");
    }
    let args = ["attach", "--json", "--quiet", "--pid", &pid];
    let attach = Running::start(&mut command(&daemon, &args));
    daemon.until("it is attached", |seen| seen.attached == ["redis"]);
    assert_eq!(
        succeeds(&daemon, &["detach", "redis"]),
        "`redis` is left alone, and nothing is in force for it any more\n"
    );
    let report: Value = serde_json::from_slice(&attach.finish().stdout).unwrap();
    assert_eq!((&report["workload"], &report["summary"]["proven"]), (&Value::from("redis"), &Value::from(2)));
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
    let name = Command::new(GLEANER).args(["why", "redis"]).env("GLEANER_CONTROL", &path).output().unwrap();
    assert!(
        fails(&name).contains("redis is no file, and gleanerd, which would know a workload, is not running")
    );
}

#[test]
fn other_users_hear_what_they_need() {
    if !gleaner_testing::is_root() {
        return;
    }
    let daemon = Daemon::start();
    fs::set_permissions(daemon.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = daemon.dir.path().join("gleaner");
    fs::copy(GLEANER, &copy).unwrap();
    let nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(args);
        command.env("GLEANER_CONTROL", &daemon.path).env("XDG_RUNTIME_DIR", "/nowhere").current_dir("/");
        command.output().unwrap()
    };
    let said = fails(&nobody(&["status"]));
    assert!(said.contains("be root, or in the group `gleaner`"), "{said}");
    // Their own runs are theirs: the daemon is not asked for them.
    let run = nobody(&["run", "--", "true"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert!(daemon.seen().calls.is_empty());
}
