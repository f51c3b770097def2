//! `gleaner diagnose` on built-in and real programs with one cause each, on a running program, and as a page. Needs
//! root.

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
use gleaner_testing::skipped;

/// Length of each observation, in seconds.
const LENGTH: &str = "2";

/// Microseconds lost per second below which a cause is not the verdict; below NEGLIGIBLE it is not listed.
const SIGNIFICANT: f64 = 30_000.0;
const NEGLIGIBLE: f64 = 500.0;
/// Causes that come from the host or from other programs.
const NOT_ITS_OWN: [&str; 3] = ["run-queue-delay", "steal", "tick"];

/// The report on a command that outlasts the observation. Which cause costs most depends on the host, so the ranking is
/// tested elsewhere, on made-up counts; here it must follow from what was counted.
fn diagnose(machine: &Machine, words: &[impl AsRef<OsStr>]) -> Value {
    let output = command(&["diagnose", "--json", "--seconds", LENGTH, "--"]).args(words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    machine.assert_untouched();
    let report = serde_json::from_slice(&output.stdout).unwrap();
    assert_follows(&report);
    report
}

fn causes(report: &Value) -> impl Iterator<Item = &Value> {
    report["causes"].as_array().unwrap().iter()
}

fn cause<'a>(report: &'a Value, kind: &str) -> Option<&'a Value> {
    causes(report).find(|cause| cause["kind"] == kind)
}

fn lost(cause: &Value) -> f64 {
    cause["lost_us_per_second"].as_f64().unwrap()
}

fn seconds(duration: &Value) -> f64 {
    duration["secs"].as_f64().unwrap() + duration["nanos"].as_f64().unwrap() * 1e-9
}

/// Checks that the causes follow from what was counted, in the order of their losses, and that the first one is the
/// verdict if it is significant.
#[track_caller]
fn assert_follows(report: &Value) {
    let details = described(report);
    let losses: Vec<f64> = causes(report).map(lost).collect();
    assert!(losses.is_sorted_by(|a, b| a >= b) && losses.iter().all(|lost| *lost >= NEGLIGIBLE), "{details}");
    let first = causes(report).next().filter(|first| lost(first) >= SIGNIFICANT);
    assert_eq!(report["verdict"], first.map_or(Value::Null, |first| first["kind"].clone()), "{details}");

    let (counted, ready) = (&report["counted"], seconds(&report["costs"]["ready"]));
    let elapsed = seconds(&counted["elapsed"]);
    let number = |of: &Value| of.as_f64().unwrap();
    let total = |lengths: &Value| number(&lengths["total_ns"]) * 1e-9;
    let halted = &counted["wakes"]["halted"];
    let (spin, waits) = (&counted["kernel_spin"], &counted["waits"]["io"]);
    let io_loss = (number(&waits["count"]) * seconds(&report["costs"]["halted"])).min(total(waits));
    for (kind, count, loss) in [
        ("hlt", &halted["count"], total(halted) - number(&halted["count"]) * ready),
        ("kernel-spinning", &spin["count"], total(spin)),
        ("io-wait", &waits["count"], io_loss),
        ("steal", &Value::from(0), number(&report["stolen"]) * elapsed),
    ] {
        let expected = loss * 1e6 / elapsed;
        let Some(cause) = cause(report, kind) else {
            assert!(expected < NEGLIGIBLE + 1.0, "{kind} is missing, {expected} us/s:\n{details}");
            continue;
        };
        assert!((lost(cause) - expected).abs() < 1.0, "{kind} costs {expected} us/s:\n{details}");
        let times = number(&cause["per_second"]) * elapsed;
        assert!((times - number(count)).abs() < 0.5, "{kind}, {times} times of {count}:\n{details}");
    }
}

/// The report on a command; `None` if this machine cannot make one.
fn diagnose_alone(words: &[impl AsRef<OsStr>]) -> Option<Value> {
    let machine = Machine::take()?;
    Some(diagnose(&machine, words))
}

/// The report on a built-in workload; `None` if this machine cannot make one.
fn built_in(workload: &[&str]) -> Option<Value> {
    diagnose_alone(&[&[GLEANER, "workload"], workload, &["--seconds", "60"]].concat())
}

/// Whether the program is installed; if not, prints how to install it.
fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        skipped(format_args!("there is no {program}: run scripts/setup test"));
    }
    there
}

/// How often threads whose names start with `by` woke threads whose names start with `whom`.
fn wakes(report: &Value, by: &str, whom: &str) -> u64 {
    let is = |name: &Value, start: &str| name.as_str().unwrap().starts_with(start);
    let edges = report["counted"]["edges"].as_array().unwrap().iter();
    let between = edges.filter(|edge| is(&edge["waker"], by) && is(&edge["wakee"], whom));
    between.map(|edge| edge["count"].as_u64().unwrap()).sum()
}

/// Asserts that its threads block and wake each other. If that woke vCPUs, the report names the pairs and has advice.
#[track_caller]
fn assert_blocking(report: &Value, by: &str, whom: &str) {
    assert!(wakes(report, by, whom) > 0, "{}", report["counted"]["edges"]);
    for cause in ["hlt", "ipi"].into_iter().filter_map(|kind| cause(report, kind)) {
        let behind = cause["behind"].as_array().unwrap();
        assert!(behind.iter().all(|edge| edge.as_str().unwrap().contains(" wakes ")), "{cause}");
        assert!(cause["advice"][0].as_str().unwrap().contains("gleaner run"), "{cause}");
    }
}

/// Asserts that the program loses nothing to virtualisation itself, whatever other programs and the host do.
#[track_caller]
fn assert_no_cause(report: &Value) {
    let own = causes(report).filter(|cause| !NOT_ITS_OWN.contains(&cause["kind"].as_str().unwrap()));
    assert!(own.map(lost).all(|lost| lost < SIGNIFICANT), "{}", described(report));
}

/// Every cause with its cost, for the message of a failure.
fn described(report: &Value) -> String {
    let causes = report["causes"].as_array().unwrap().iter();
    let lines = causes.map(|c| format!("{} {} us/s: {}", c["kind"], c["lost_us_per_second"], c["estimate"]));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn requests_and_replies_are_blocking_synchronisation() {
    let Some(report) = built_in(&["request-response"]) else { return };
    assert_blocking(&report, "request", "request");
}

#[test]
fn a_convoy_is_blocking_synchronisation() {
    let Some(report) = built_in(&["convoy"]) else { return };
    assert_blocking(&report, "convoy", "convoy");
}

#[test]
fn a_convoy_of_sysbench_is_blocking_synchronisation() {
    if !has("sysbench") {
        return;
    }
    let convoy = ["sysbench", "threads", "--threads=2", "--thread-locks=1", "--time=60", "run"];
    let Some(report) = diagnose_alone(&convoy) else { return };
    assert_blocking(&report, "sysbench", "sysbench");
}

#[test]
fn a_client_of_a_database_is_blocking_synchronisation() {
    if !has("sysbench") || !has("mariadbd") {
        return;
    }
    // Before the server is set up, which takes CPU time.
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    // The server runs as its own user.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let report =
        with_mariadb(dir.path(), "oltp_point_select", 1, |client| diagnose(&machine, &client)).unwrap();
    // Whatever the name of the server's connection thread.
    assert_blocking(&report, "", "sysbench");
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
    let Some(tlb) = cause(&report, "tlb-shootdown") else { panic!("{}", described(&report)) };
    let counted = &report["counted"];
    let sent = tlb["per_second"].as_f64().unwrap() * seconds(&counted["elapsed"]);
    let events = &counted["events"];
    let most = events["sent_tlb"].as_u64().unwrap().max(events["sent_call"].as_u64().unwrap());
    assert!(sent > 0.5 && sent < most as f64 + 0.5, "{sent} of {most}");
    // The kernel counts what arrived, for the whole machine.
    let received = |vcpu: &Value| vcpu["received"]["tlb"].as_u64().unwrap();
    assert!(counted["vcpus"].as_array().unwrap().iter().map(received).sum::<u64>() > 0, "{counted}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_barrier_in_user_mode_is_user_level_spinning() {
    let threads = (2 * std::thread::available_parallelism().unwrap().get()).to_string();
    let Some(report) = built_in(&["user-spin-barrier", "--threads", &threads]) else { return };
    let Some(spinning) = cause(&report, "user-spinning") else { panic!("{}", described(&report)) };
    let met = spinning["per_second"].as_f64().unwrap() * seconds(&report["counted"]["elapsed"]);
    let threads = report["counted"]["threads"].as_array().unwrap();
    let ticks: u64 = threads.iter().map(|thread| thread["ticks"].as_u64().unwrap()).sum();
    assert!(met > 0.5 && met < ticks as f64 + 0.5, "{met} of {ticks} ticks");
    assert!(spinning["behind"][0].as_str().unwrap().contains("% spinning"), "{spinning}");
}

#[test]
fn what_exits_cost_is_taken_from_the_hosts_record_and_that_is_said() {
    let Some(_machine) = Machine::take() else { return };
    // Written by hand: the fixture's VM `ping`.
    let dir = gleaner_testing::tree::tree(&[("host.json", gleaner_testing::host::RECORD)]);
    let file = dir.path().join("host.json");
    let workload = [GLEANER, "workload", "request-response", "--seconds", "60"];
    let run = |more: &[&str]| {
        let args = [&["diagnose", "--seconds", "1"], more, &["--"], &workload[..]].concat();
        let output = gleaner(&args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let shown = run(&["--host", file.to_str().unwrap(), "--vm", "ping"]);
    assert!(
        shown.contains("of VM ping (20.0 s): 1.3µs to program the timer, 2.2µs to send an interrupt"),
        "{shown}"
    );
    assert!(!shown.contains("assumed to cost"), "{shown}");
    let shown = run(&[]);
    assert!(shown.contains("An exit to program the timer is assumed to cost 2µs"), "{shown}");
    assert!(!shown.contains("host's record"), "{shown}");
    let output = gleaner(
        &[
            &["diagnose", "--seconds", "1", "--json", "--host", file.to_str().unwrap(), "--vm", "1520", "--"],
            &workload[..],
        ]
        .concat(),
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (recorded, costs) = (&report["recorded"], &report["costs"]);
    assert_eq!((recorded["vm"].as_str(), recorded["timer"]["nanos"].as_u64()), (Some("ping"), Some(1300)));
    assert_eq!(costs["interrupt"]["nanos"], 2200);
}

#[test]
fn a_command_that_fails_passes_its_status_on_and_is_still_reported() {
    let Some(_machine) = Machine::take() else { return };
    let output = gleaner(&["diagnose", "--", "sh", "-c", "echo said; exit 9"]);
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    // The command's output is not part of the report.
    assert_eq!(text(&output.stderr), "said\n");
    assert!(text(&output.stdout).contains("Wake-up until run"), "{}", text(&output.stdout));
}

/// A control group of the test's own, removed when dropped.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        let setup = CgroupSetup::detect(&Root::system()).unwrap();
        // Processes can enter these without any configuration.
        let mount = ["cpuacct", "cpu"].into_iter().find_map(|name| setup.v1.get(name)).or(setup.v2.as_ref());
        let dir = mount.unwrap().mount.join(format!("diagnose-test-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    /// Starts the workload in the group.
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
        // A killed process leaves its group shortly after its end.
        until("the group can be removed", || fs::remove_dir(&self.0).is_ok());
    }
}

/// The report on a running program.
fn observe(target: &[&str]) -> Value {
    let output = gleaner(&[&["diagnose", "--json", "--seconds", "1"], target].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn threads(report: &Value) -> Vec<&str> {
    let threads = report["counted"]["threads"].as_array().unwrap().iter();
    threads.map(|thread| thread["name"].as_str().unwrap()).collect()
}

#[test]
fn what_runs_already_is_observed_by_process_by_group_and_as_a_whole() {
    let Some(machine) = Machine::take() else { return };
    let group = Group::new();
    let inside = group.start("request-response");
    let outside = Running::start(&mut command(&["workload", "compute", "--threads", "1", "--seconds", "60"]));
    let by_group = observe(&["--cgroup", group.0.to_str().unwrap()]);
    let by_pid = observe(&["--pid", &inside.pid().to_string()]);
    for report in [&by_group, &by_pid] {
        let threads = threads(report);
        assert!(threads.iter().any(|name| name.starts_with("request")), "{threads:?}");
        assert!(!threads.iter().any(|name| name.starts_with("compute")), "{threads:?}");
        assert!(wakes(report, "request", "request") > 0, "{}", report["counted"]["edges"]);
    }
    let whole = observe(&["--system"]);
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
fn what_vanishes_meanwhile_is_reported() {
    let Some(_machine) = Machine::take() else { return };
    let mut brief = Running::start(Command::new("cat").arg("-"));
    let pid = brief.pid().to_string();
    let observing = Running::start(&mut command(&["diagnose", "--seconds", "2", "--pid", &pid]));
    until("it observes", || {
        let fds = fs::read_dir(format!("/proc/{}/fd", observing.pid())).unwrap().flatten();
        fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|to| to.to_string_lossy().contains("bpf-prog"))
    });
    drop(brief.take_stdin());
    assert!(brief.wait().success());
    let output = observing.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains(&format!("Process {pid} ended while it was observed.")), "{shown}");
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
    for part in ["Who wakes whom", "timeline", "wakes-", "How it was measured"] {
        assert!(html.contains(part), "no {part}");
    }
    let json = html.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let report: Value = serde_json::from_str(json).unwrap();
    let lanes = report["timeline"]["lanes"].as_array().unwrap();
    let vcpus = report["counted"]["vcpus"].as_array().unwrap();
    assert_eq!(lanes.len(), vcpus.len());
    // The figures of each vCPU show what was counted on it.
    for vcpu in vcpus {
        for (figure, lengths) in [("delay", &vcpu["delays"]), ("halt", &vcpu["halts"])] {
            let figure = format!("{figure}-{}", vcpu["cpu"]);
            assert!(lengths["count"] == 0 || html.contains(&figure), "no {figure}: {lengths}");
        }
    }
    let edges = report["timeline"]["edges_s"].as_array().unwrap();
    let edges: Vec<f64> = edges.iter().map(|edge| edge.as_f64().unwrap()).collect();
    assert!(edges.len() > 1 && edges[0] == 0.0 && edges.is_sorted_by(|a, b| a < b), "{edges:?}");
    let elapsed = seconds(&report["counted"]["elapsed"]);
    // It was to observe for one second. The counters are read after the last edge.
    assert!((1.0..=elapsed).contains(&edges[edges.len() - 1]), "{edges:?} of {elapsed} s");
    for lane in lanes {
        let buckets = lane["buckets"].as_array().unwrap();
        // The number of buckets depends on when the reader was scheduled; together they cover the observation.
        assert_eq!(buckets.len(), edges.len() - 1);
        for bucket in buckets {
            let part = |name: &str| bucket[name].as_f64().unwrap();
            let sum = part("workload") + part("others") + part("polling") + part("halted");
            assert!((sum - 1.0).abs() < 1e-6, "{bucket}");
        }
    }
    assert!(lanes.iter().any(|lane| lane["buckets"].to_string().contains("\"workload\":0.")), "{lanes:?}");

    // If the page cannot be written, the command is not run.
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
