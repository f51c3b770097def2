//! The commands that talk to the daemon, beside gleanerd itself, with its files in a directory of the test. Its leases and
//! its lock are the machine's: one test at a time has it.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::levers::Machine;
use common::memory;
use common::process::{GLEANER, Running, text, until};
use gleaner_control::Client;
use gleaner_policy::Method;
use gleaner_testing::skipped;
use nix::sys::signal::Signal;
use serde_json::Value;

/// A running gleanerd. Dropping it kills it, and then restores the machine.
struct Gleanerd {
    process: Running,
    dir: tempfile::TempDir,
    machine: Machine,
}

impl Gleanerd {
    /// Starts it. `None`, with a message, where that is not possible.
    fn start() -> Option<Self> {
        let program = Path::new(GLEANER).with_file_name("gleanerd");
        if !program.exists() {
            skipped("needs `cargo build -p gleaner-daemon`");
            return None;
        }
        let machine = Machine::take()?;
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("gleaner.toml"), "quiet-hours = []\n").unwrap();
        let mut command = Command::new(program);
        command.arg("--config").arg(dir.path()).arg("--socket").arg(dir.path().join("control.sock"));
        command.env("GLEANER_MEMORY", dir.path().join("memory"));
        let process = Running::start(&mut command);
        let daemon = Self { process, dir, machine };
        until("gleanerd listens", || Client::connect(&daemon.socket()).is_ok());
        Some(daemon)
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    /// A command with these arguments, which finds this daemon and knows of no other memory than its.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(GLEANER);
        command.args(args).env("GLEANER_CONTROL", self.socket()).env_remove("GLEANER_MEMORY");
        command
    }

    fn ask(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    #[track_caller]
    fn succeeds(&self, args: &[&str]) -> String {
        let output = self.ask(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{args:?}");
        text(&output.stdout)
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let value: Value = serde_json::from_str(&self.succeeds(args)).unwrap();
        assert_eq!(value["version"], 1);
        value
    }

    #[track_caller]
    fn fails(&self, args: &[&str]) -> String {
        let output = self.ask(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    /// Whether this workload is engaged.
    fn has_engaged(&self, name: &str) -> bool {
        let status = Client::connect(&self.socket()).unwrap().status().unwrap();
        status.workloads.iter().any(|w| w.name == name && w.state == gleaner_control::State::Engaged)
    }

    /// Ends it, and asserts that everything is as before.
    fn stop(self) {
        self.process.signal(Signal::SIGTERM);
        let output = self.process.finish();
        assert!(output.status.success(), "{}", text(&output.stderr));
        self.machine.assert_untouched();
    }
}

#[test]
fn the_daemon_says_what_it_does_and_does_what_it_is_asked() {
    let Some(daemon) = Gleanerd::start() else { return };
    let page = daemon.succeeds(&["status"]);
    let head = format!("(pid {}), ", daemon.process.pid());
    assert!(page.lines().next().unwrap().contains(&head), "{page}");
    assert!(page.contains("WORKLOAD") && !page.contains("-0.0"), "{page}");
    let status = &daemon.json(&["status", "--json"])["status"];
    assert_eq!((&status["pid"], &status["mode"]), (&daemon.process.pid().into(), &"running".into()));
    assert!(daemon.succeeds(&["metrics"]).ends_with("# EOF\n"));
    assert!(daemon.succeeds(&["metrics"]).contains("\ngleaner_vcpus "));
    let top = daemon.json(&["top", "--once", "--json", "--no-trace", "--interval", "0.05"]);
    assert_eq!(top["daemon"]["pid"], daemon.process.pid());

    let paused = daemon.succeeds(&["pause", "incident 4711"]);
    assert_eq!(paused, "paused: nothing is in force any more; `gleaner resume` ends that\n");
    let page = daemon.succeeds(&["status"]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("paused, nothing is in force: incident 4711"), "{page}");
    let busy = daemon.fails(&["attach", "--pid", &std::process::id().to_string()]);
    assert!(busy.contains("paused (incident 4711): `gleaner resume` ends that"), "{busy}");
    let again = daemon.json(&["pause", "--json"]);
    assert_eq!((&again["mode"], &again["leases"]), (&"paused".into(), &0.into()));
    assert_eq!(daemon.succeeds(&["resume"]), "resumed: running\n");
    assert_eq!(daemon.json(&["resume", "--json"])["mode"], "running");

    let unknown = daemon.fails(&["detach", "no-such-workload"]);
    assert!(unknown.starts_with("gleaner: there is no workload `no-such-workload`"), "{unknown}");
    let unknown = daemon.fails(&["why", "no-such-workload"]);
    assert!(unknown.starts_with("gleaner: there is no workload `no-such-workload`"), "{unknown}");
    let unknown = daemon.fails(&["forget", "no-such-program"]);
    assert!(unknown.starts_with("gleaner: there is no program `no-such-program`"), "{unknown}");
    daemon.stop();
}

#[test]
fn a_mistake_in_the_configuration_is_reported_with_its_line() {
    let Some(daemon) = Gleanerd::start() else { return };
    let file = daemon.dir.path().join("gleaner.toml");
    assert_eq!(daemon.succeeds(&["reload"]), format!("in force are {}\n", file.display()));
    fs::write(&file, "\nobjektive = \"latency\"\n").unwrap();
    let wrong = daemon.fails(&["reload"]);
    assert!(wrong.contains(&format!("{}:2", file.display())) && wrong.contains("`objective`"), "{wrong}");
    fs::write(&file, "objective = \"latency\"\n").unwrap();
    assert_eq!(daemon.json(&["reload", "--json"])["files"][0], file.to_str().unwrap());
    daemon.stop();
}

#[test]
fn what_was_learned_is_forgotten_by_the_daemon() {
    let Some(daemon) = Gleanerd::start() else { return };
    let dir = daemon.dir.path().join("memory");
    for program in ["/opt/a", "/opt/b"] {
        memory::seed(&dir, program, Method::Haltpoll, memory::polling());
    }
    assert_eq!(daemon.succeeds(&["forget", "a"]), "forgetting 1 program\n");
    let forgotten = daemon.json(&["forget", "--json"]);
    assert_eq!(forgotten["forgotten"], serde_json::json!(["/opt/b"]));
    daemon.stop();
}

#[test]
fn attach_lasts_until_it_is_detached_or_interrupted() {
    let Some(daemon) = Gleanerd::start() else { return };
    let workload = Running::start(Command::new("sh").args(["-c", "echo ready; read line"]));
    let pid = workload.pid().to_string();
    let attach = Running::start(&mut daemon.command(&["attach", "--json", "--quiet", "--pid", &pid]));
    until("it is engaged", || daemon.has_engaged("sh"));
    let page = daemon.succeeds(&["status"]);
    assert!(page.contains("another client asked for it"), "{page}");
    let said = daemon.succeeds(&["detach", "sh"]);
    assert_eq!(said, "`sh` is left alone, and nothing is in force for it any more\n");
    let account: Value = serde_json::from_slice(&attach.finish().stdout).unwrap();
    assert_eq!((&account["version"], &account["workload"]), (&1.into(), &"sh".into()));
    assert!(account["summary"]["elapsed"].is_object(), "{account}");
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let attach = Running::start(&mut daemon.command(&["attach", "--pid", &pid]));
        until("it is engaged", || daemon.has_engaged("sh"));
        attach.signal(signal);
        let output = attach.finish();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(said.starts_with("gleaner: gleanerd helps `sh`; Ctrl-C ends that\n"), "{said}");
        assert!(!daemon.has_engaged("sh"));
    }
    let story = daemon.succeeds(&["why", "sh"]);
    assert!(story.starts_with("`sh` on vCPU") && story.contains("released: its caller hung up"), "{story}");
    let report = &daemon.json(&["why", "sh", "--json"])["workloads"][0];
    assert_eq!(report["workload"], "sh");
    assert!(report["start_unix_ms"].is_u64() && report["story"].is_array(), "{report}");
    let missing = daemon.fails(&["attach", "--pid", "4194304"]);
    assert!(missing.contains("process 4194304"), "{missing}");
    daemon.stop();
}

#[test]
fn run_starts_the_command_and_the_daemon_helps_it() {
    let Some(daemon) = Gleanerd::start() else { return };
    let output = daemon.ask(&["run", "--", "sh", "-c", "echo out; sleep 0.5; exit 3"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), "out\n"));
    let account = text(&output.stderr);
    assert!(account.starts_with("gleaner: 0.") && account.contains("changes proven"), "{account}");
    let quiet = daemon.ask(&["run", "--quiet", "--", "sleep", "0.3"]);
    assert_eq!((quiet.status.code(), text(&quiet.stderr).as_str()), (Some(0), ""));
    // It has ended before the daemon finds it, or just after.
    for _ in 0..5 {
        let short = daemon.ask(&["run", "--quiet", "--", "true"]);
        assert_eq!((short.status.code(), text(&short.stderr).as_str()), (Some(0), ""));
    }
    assert_eq!(daemon.ask(&["run", "--", "no-such-command"]).status.code(), Some(127));
    let fixed = daemon.ask(&["run", "--fixed", "halt", "--require", "--", "true"]);
    assert_eq!(fixed.status.code(), Some(125));
    assert!(text(&fixed.stderr).contains("--fixed needs it stopped: `systemctl stop gleanerd`"));
    daemon.stop();
}

#[test]
fn run_passes_signals_on() {
    let Some(daemon) = Gleanerd::start() else { return };
    let script = "trap 'echo got; exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let mut run = Running::start(&mut daemon.command(&["run", "--", "sh", "-c", script]));
    assert_eq!(run.line(), "ready");
    until("it is engaged", || daemon.has_engaged("sh"));
    run.signal(Signal::SIGTERM);
    let output = run.finish();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(7), "got\n"));
    daemon.stop();
}

#[test]
fn run_goes_on_without_a_daemon_that_ends() {
    let Some(daemon) = Gleanerd::start() else { return };
    let mut run = Running::start(&mut daemon.command(&["run", "--", "cat"]));
    until("it is engaged", || daemon.has_engaged("cat"));
    daemon.process.signal(Signal::SIGKILL);
    let mut why = String::new();
    BufReader::new(run.take_stderr()).read_line(&mut why).unwrap();
    run.send("line");
    assert_eq!(run.line(), "line");
    assert!(run.finish().status.success());
    assert!(why.contains("runs on without Gleaner: gleanerd closed the connection"), "{why}");
    let status = daemon.fails(&["status"]);
    assert!(status.contains("gleanerd is not running") && status.contains("on the machine"), "{status}");
    // What it did can still be read.
    assert!(daemon.succeeds(&["why", "cat"]).starts_with("`cat` on vCPU"));
    let unknown = daemon.fails(&["why", "caat"]);
    assert!(unknown.contains("is not running; it has left a journal of `cat`"), "{unknown}");
    assert!(daemon.ask(&["restore"]).status.success());
    daemon.machine.assert_untouched();
}

#[test]
fn other_users_learn_what_they_need() {
    let Some(daemon) = Gleanerd::start() else { return };
    let copy = daemon.dir.path().join("gleaner");
    fs::copy(GLEANER, &copy).unwrap();
    let nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(args);
        command.env("GLEANER_CONTROL", daemon.socket()).env("XDG_RUNTIME_DIR", "/nowhere").current_dir("/");
        command.output().unwrap()
    };
    let status = nobody(&["status"]);
    assert_eq!(status.status.code(), Some(1));
    let said = text(&status.stderr);
    assert!(said.contains("be root, or in the group `gleaner`"), "{said}");
    // Their own runs are theirs: the daemon is not asked for them.
    let run = nobody(&["run", "--", "true"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    daemon.stop();
}
