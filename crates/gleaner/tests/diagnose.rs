//! `gleaner diagnose` on built-in and on real programs, each of which has one cause; on what runs already; as a page. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use gleaner_bench::servers::with_mariadb;
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::CgroupSetup;
use serde_json::Value;

use common::levers::Machine;
use common::process::{GLEANER, Running, command, gleaner, text, until};
use common::skipped;

/// How long each program is looked at, in seconds.
const LOOK: &str = "2";

/// So often is a program looked at if others want its vCPUs: a stolen vCPU makes its own causes, preempted lock holders
/// first of all, and another program that computes lets no vCPU halt.
const LOOKS: usize = 8;
const STOLEN_US_PER_SECOND: f64 = 50_000.0;

/// The report on a command that runs for longer than is looked.
fn diagnose(machine: &Machine, words: &[impl AsRef<OsStr>]) -> Value {
    let look = || -> Value {
        let output = command(&["diagnose", "--json", "--seconds", LOOK, "--"]).args(words).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        machine.assert_untouched();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let mut report = look();
    for _ in 1..LOOKS {
        if stolen(&report) < STOLEN_US_PER_SECOND && verdict(&report) != "run-queue-delay" {
            break;
        }
        report = look();
    }
    report
}

fn stolen(report: &Value) -> f64 {
    let mut causes = report["causes"].as_array().unwrap().iter();
    let steal = causes.find(|cause| cause["kind"] == "steal");
    steal.map_or(0.0, |cause| cause["lost_us_per_second"].as_f64().unwrap())
}

/// The report on a command; `None` where none can be made.
fn diagnose_alone(words: &[impl AsRef<OsStr>]) -> Option<Value> {
    let machine = Machine::take()?;
    Some(diagnose(&machine, words))
}

/// The report on a built-in workload; `None` where none can be made.
fn built_in(workload: &[&str]) -> Option<Value> {
    diagnose_alone(&[&[GLEANER, "workload"], workload, &["--seconds", "60"]].concat())
}

/// Whether the program is installed; a loud word where it is not.
fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        skipped(&format!("there is no {program}: run scripts/setup test"));
    }
    there
}

fn verdict(report: &Value) -> &str {
    report["verdict"].as_str().unwrap_or("none")
}

/// Which part of blocking synchronisation it is depends on whether the woken thread's vCPU has halted yet: where it has only
/// stopped its tick, stopping and starting that may cost the most.
#[track_caller]
fn assert_blocking(report: &Value) {
    assert!(["hlt", "ipi", "tick"].contains(&verdict(report)), "{}", told(report));
}

/// The costliest of the causes that wake-ups are behind.
fn waking(report: &Value) -> &Value {
    let causes = report["causes"].as_array().unwrap();
    causes.iter().find(|c| ["hlt", "ipi"].contains(&c["kind"].as_str().unwrap())).unwrap()
}

/// Nothing of it is virtualisation's fault. Other programs may want the vCPU, too, and so may the host.
#[track_caller]
fn assert_no_cause(report: &Value) {
    assert!(["none", "run-queue-delay", "steal"].contains(&verdict(report)), "{}", told(report));
}

/// For a failure: every cause with what it costs.
fn told(report: &Value) -> String {
    let causes = report["causes"].as_array().unwrap().iter();
    let lines = causes.map(|c| format!("{} {} us/s: {}", c["kind"], c["lost_us_per_second"], c["estimate"]));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn requests_and_replies_are_blocking_synchronisation() {
    let Some(report) = built_in(&["request-response"]) else { return };
    assert_blocking(&report);
    let cause = waking(&report);
    assert!(cause["per_second"].as_f64().unwrap() > 1000.0, "{}", told(&report));
    assert!(cause["behind"][0].as_str().unwrap().contains("wakes"), "{cause}");
    assert!(cause["advice"][0].as_str().unwrap().contains("gleaner run"));
}

#[test]
fn a_convoy_is_blocking_synchronisation() {
    let Some(report) = built_in(&["convoy"]) else { return };
    assert_blocking(&report);
}

#[test]
fn a_convoy_of_sysbench_is_blocking_synchronisation() {
    if !has("sysbench") {
        return;
    }
    let convoy = ["sysbench", "threads", "--threads=2", "--thread-locks=1", "--time=60", "run"];
    let Some(report) = diagnose_alone(&convoy) else { return };
    assert_blocking(&report);
}

#[test]
fn a_client_of_a_database_is_blocking_synchronisation() {
    if !has("sysbench") || !has("mariadbd") {
        return;
    }
    // Before the server is set up: that computes, too.
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    // The server has a user of its own.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let report =
        with_mariadb(dir.path(), "oltp_point_select", 1, |client| diagnose(&machine, &client)).unwrap();
    assert_blocking(&report);
    let behind = waking(&report)["behind"].to_string();
    assert!(behind.contains("wakes sysbench"), "{behind}");
}

#[test]
fn computation_of_sysbench_has_no_cause() {
    if !has("sysbench") {
        return;
    }
    let Some(report) = diagnose_alone(&["sysbench", "cpu", "--threads=1", "--time=60", "run"]) else {
        return;
    };
    assert_no_cause(&report);
}

#[test]
fn computation_has_no_cause() {
    let Some(report) = built_in(&["compute", "--threads", "1"]) else { return };
    assert_no_cause(&report);
}

#[test]
fn changes_of_an_address_space_are_tlb_shootdowns() {
    let Some(report) = built_in(&["tlb"]) else { return };
    assert_eq!(verdict(&report), "tlb-shootdown", "{}", told(&report));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_barrier_in_user_mode_is_user_level_spinning() {
    let threads = (2 * std::thread::available_parallelism().unwrap().get()).to_string();
    let Some(report) = built_in(&["user-spin-barrier", "--threads", &threads]) else { return };
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

/// A control group of its own, removed at the end; none of Gleaner's.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        let setup = CgroupSetup::detect(&Root::system()).unwrap();
        // These need no configuration before a process may enter.
        let mount = ["cpuacct", "cpu"].into_iter().find_map(|name| setup.v1.get(name)).or(setup.v2.as_ref());
        let dir = mount.unwrap().mount.join(format!("diagnose-test-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    /// Starts the workload in it.
    fn start(&self, workload: &str) -> Running {
        let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", self.0.display());
        let mut command = Command::new("sh");
        command.args(["-c", &enter, "sh", GLEANER, "workload", workload, "--seconds", "60"]);
        let running = Running::start(&mut command);
        let status = format!("/proc/{}/cmdline", running.pid());
        until("the workload runs", || fs::read_to_string(&status).is_ok_and(|s| s.starts_with(GLEANER)));
        running
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was killed leaves its group a moment later.
        until("the group can be removed", || fs::remove_dir(&self.0).is_ok());
    }
}

/// The report on what runs.
fn look_at(target: &[&str]) -> Value {
    let output = gleaner(&[&["diagnose", "--json", "--seconds", "1"], target].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn threads(report: &Value) -> Vec<&str> {
    let threads = report["counted"]["threads"].as_array().unwrap().iter();
    threads.map(|thread| thread["name"].as_str().unwrap()).collect()
}

#[test]
fn what_runs_already_is_looked_at_by_process_by_group_and_as_a_whole() {
    let Some(machine) = Machine::take() else { return };
    let group = Group::new();
    let inside = group.start("request-response");
    let outside = Running::start(&mut command(&["workload", "compute", "--threads", "1", "--seconds", "60"]));
    let by_group = look_at(&["--cgroup", group.0.to_str().unwrap()]);
    let by_pid = look_at(&["--pid", &inside.pid().to_string()]);
    for report in [&by_group, &by_pid] {
        let threads = threads(report);
        assert!(threads.iter().any(|name| name.starts_with("request")), "{threads:?}");
        assert!(!threads.iter().any(|name| name.starts_with("compute")), "{threads:?}");
        let edges = report["counted"]["edges"].as_array().unwrap();
        assert!(edges.iter().any(|edge| edge["count"].as_u64().unwrap() > 100), "{edges:?}");
    }
    let whole = look_at(&["--system"]);
    for name in ["request", "compute"] {
        assert!(
            threads(&whole).iter().any(|thread| thread.starts_with(name)),
            "{name}: {:?}",
            threads(&whole)
        );
    }
    drop((inside, outside));
    machine.assert_untouched();
}

#[test]
fn what_vanishes_meanwhile_is_told() {
    let Some(_machine) = Machine::take() else { return };
    let mut brief = Running::start(Command::new("cat").arg("-"));
    let pid = brief.pid().to_string();
    let looking = Running::start(&mut command(&["diagnose", "--seconds", "2", "--pid", &pid]));
    until("it looks", || {
        let fds = fs::read_dir(format!("/proc/{}/fd", looking.pid())).unwrap().flatten();
        fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|to| to.to_string_lossy().contains("bpf-prog"))
    });
    drop(brief.take_stdin());
    assert!(brief.wait().success());
    let output = looking.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains(&format!("Process {pid} ended while it was looked at.")), "{shown}");
}

#[test]
fn a_page_is_written_beside_the_text() {
    let Some(_machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    let file = page.to_str().unwrap();
    let workload = [GLEANER, "workload", "request-response", "--seconds", "60"];
    let output = gleaner(&[&["diagnose", "--seconds", "1", "-o", file, "--"], &workload[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("Wake-up until run"));
    assert!(text(&output.stderr).contains(&format!("wrote {file}")));
    let html = fs::read_to_string(&page).unwrap();
    for part in ["wake-graph", "timeline", "wakes-", "delay-0", "halt-0", "How it was measured"] {
        assert!(html.contains(part), "no {part}");
    }
    let json = html.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let report: Value = serde_json::from_str(json).unwrap();
    let lanes = report["timeline"]["lanes"].as_array().unwrap();
    assert_eq!(lanes.len(), report["counted"]["vcpus"].as_array().unwrap().len());
    for lane in lanes {
        let buckets = lane["buckets"].as_array().unwrap();
        assert!((5..=30).contains(&buckets.len()), "{}", buckets.len());
        for bucket in buckets {
            let part = |name: &str| bucket[name].as_f64().unwrap();
            let sum = part("workload") + part("others") + part("polling") + part("halted");
            assert!((sum - 1.0).abs() < 1e-6, "{bucket}");
        }
    }
    assert!(lanes.iter().any(|lane| lane["buckets"].to_string().contains("\"workload\":0.")), "{lanes:?}");

    // Where it cannot be written, that is told before anything runs.
    let output = gleaner(&["diagnose", "-o", "/nowhere/page.html", "--", "echo", "it ran"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!text(&output.stderr).contains("it ran"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("/nowhere/page.html"), "{}", text(&output.stderr));
}

#[test]
fn what_cannot_be_watched_is_an_error() {
    let Some(_machine) = Machine::take() else { return };
    let gone = Group::new().0.display().to_string();
    for (args, named) in [
        (vec!["diagnose", "--pid", "4000000"], "there is no process 4000000"),
        (vec!["diagnose", "--cgroup", "/nowhere"], "there is no control group `/nowhere`"),
        (vec!["diagnose", "--cgroup", &gone], "there is no control group"),
    ] {
        let output = gleaner(&args);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(named), "{}", text(&output.stderr));
    }
    assert_eq!(gleaner(&["diagnose"]).status.code(), Some(2));
    assert_eq!(gleaner(&["diagnose", "--system", "--pid", "1"]).status.code(), Some(2));
}
