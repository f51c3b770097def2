//! Runs `gleaner doctor` and `gleaner restore` on this machine.

#![allow(clippy::print_stderr, reason = "a test says what it measures")]
#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::thread;

use common::levers::Machine;
use common::process::{Running, command, gleaner, text, until};
use gleaner_policy::{CpuId, CpuSet, Method, Placement};
use gleaner_proto::doctor::{self, Capability, Cell, Finding, Report};
use gleaner_proto::journal::{self, Record};
use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;

/// What `gleaner doctor` reports, which leaves the machine as it was.
fn examined(machine: &Machine, args: &[&str]) -> Report {
    let output = gleaner(&[&["doctor", "--json"], args].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    machine.assert_untouched();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn doctor_measures_every_method_and_puts_the_machine_back() {
    let Some(machine) = Machine::take() else { return };
    let report = examined(&machine, &["--quick"]);
    assert!(!report.machine.kernel.is_empty() && !report.machine.vcpus.is_empty());
    let same = report.cells.iter().find(|c| c.placement == Placement::SameVcpu).unwrap();
    assert!(same.n > 0 && same.min_ns <= same.median_ns && same.median_ns <= same.p99_ns, "{same:?}");
    if report.machine.vcpus.len() > 1 {
        for method in [Method::Halt, Method::Yield, Method::YieldIpiFree] {
            let across = |c: &Cell| (c.placement, c.method) == (Placement::AcrossHalting, method);
            assert!(report.cells.iter().any(across), "{method} was not measured");
        }
    }
    let names: Vec<_> = report.capabilities.iter().map(|c| c.name.as_str()).collect();
    assert!(names.contains(&"haltpoll") && names.contains(&"steal"), "{names:?}");
}

/// A change of this snapshot is a change of the format: other programs read it.
#[test]
fn the_format_of_the_report_is_stable() {
    let cell = |placement, method, median_ns| Cell {
        placement,
        method,
        waker: CpuId(0),
        wakee: CpuId(1),
        n: 2_000,
        min_ns: median_ns / 2,
        median_ns,
        p99_ns: 4 * median_ns,
        waker_cpu_ns: 900,
    };
    let report = Report {
        version: doctor::VERSION,
        machine: doctor::Machine {
            kernel: "6.12.0".into(),
            hypervisor: "KVM".into(),
            vcpus: CpuSet::first(2),
            preemption: "voluntary".into(),
            preemption_source: "/sys/kernel/debug/sched/preempt".into(),
            cpuidle_driver: Some("haltpoll".into()),
            cpuidle_governor: None,
        },
        cells: vec![
            cell(Placement::SameVcpu, Method::Halt, 1_800),
            cell(Placement::AcrossHalting, Method::Haltpoll, 2_500),
        ],
        not_measured: vec!["across busy vCPUs: there is one vCPU".into()],
        method: Method::Haltpoll,
        reason: "waking a halted vCPU takes 20 times as long".into(),
        steal_share: 0.25,
        capabilities: vec![
            Capability { kind: "sensor".into(), name: "steal".into(), absent: None },
            Capability { kind: "lever".into(), name: "cpuset".into(), absent: Some("no cgroup v2".into()) },
        ],
        findings: vec![
            Finding::LatencyRequestIgnored { request: "pid 7 asks for 0 us".into() },
            Finding::HaltpollOff,
            Finding::DisabledStateIgnored { state: "C1".into(), cpu: CpuId(1) },
            Finding::PreemptionUnknown { why: "debugfs is not mounted".into() },
            Finding::PreemptionLazy,
            Finding::Steal { share: 0.25 },
            Finding::Disturbed { share: 0.5 },
            Finding::EarlierKept { method: Method::Yield, halt_cost_ns: 30_000 },
            Finding::LeasesLeft { pid: 7, changes: 2 },
            Finding::LeasesUnreadable { error: "leases.json: end of file".into() },
            Finding::LeftBehind { detail: "guest_halt_poll_ns is 200000".into() },
        ],
        gain: "Gleaner can save 17 us per wake-up".into(),
    };
    insta::assert_snapshot!(
        format!("report-{}", doctor::VERSION),
        serde_json::to_string_pretty(&report).unwrap()
    );
}

#[test]
fn restore_without_leases_has_nothing_to_do() {
    let Some(_machine) = Machine::take() else { return };
    let output = gleaner(&["restore"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "nothing to put back\n");
}

#[test]
fn restore_names_the_holder_that_lives() {
    let Some(_machine) = Machine::take() else { return };
    fs::create_dir_all("/run/gleaner").unwrap();
    let mut options = fs::File::options();
    let file = options.write(true).create(true).truncate(false).open("/run/gleaner/lock").unwrap();
    let _lock = Flock::lock(file, FlockArg::LockExclusive).unwrap();
    fs::write("/run/gleaner/holder", "4242\n").unwrap();
    let output = gleaner(&["restore"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("pid 4242"), "{}", text(&output.stderr));
}

const CALIBRATION: &str = "/run/gleaner/calibration.json";

/// Preserves the calibration file: restores it when dropped.
struct Saved(Option<Vec<u8>>);

impl Saved {
    fn take() -> Self {
        Self(fs::read(CALIBRATION).ok())
    }

    fn read() -> Value {
        serde_json::from_slice(&fs::read(CALIBRATION).unwrap()).unwrap()
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        let put_back = match &self.0 {
            Some(before) => fs::write(CALIBRATION, before),
            None => fs::remove_file(CALIBRATION),
        };
        if let Err(error) = put_back {
            eprintln!("NOT RESTORED: {CALIBRATION}: {error}");
        }
    }
}

/// Twice as many computing threads as vCPUs, until dropped.
fn busy() -> Running {
    let threads = thread::available_parallelism().unwrap().get() * 2;
    let args = ["workload", "compute", "--for", "600s", "--threads", &threads.to_string()];
    let computing = Running::start(&mut command(&args));
    let tasks = format!("/proc/{}/task", computing.pid());
    until("they compute", || fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > threads));
    computing
}

#[test]
fn a_busy_machines_doctor_does_not_switch_retention_off() {
    let Some(machine) = Machine::take() else { return };
    let _saved = Saved::take();
    let _busy = busy();
    let _ = fs::remove_file(CALIBRATION);

    // A doubtful calibration is better than none, but does not say that nothing pays.
    let report = examined(&machine, &["--quick"]);
    assert_ne!(report.method, Method::Halt, "{}", report.reason);
    let doubtful = Saved::read();
    assert!(doubtful["disturbed"].as_f64().unwrap() > 0.9, "{doubtful}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let output = gleaner(&["run", "--journal", path, "--", "true"]);
    assert!(output.status.success() && text(&output.stderr).contains("doubtful"), "{}", text(&output.stderr));
    let records = journal::read(file.path()).unwrap();
    let Some(Record::Start { limits, config, .. }) = records.first() else { panic!("{records:?}") };
    assert!(limits.iter().any(|limit| limit.contains("doubtful")), "{limits:?}");
    assert_ne!(config.method, Method::Halt);
    assert_eq!(Saved::read(), doubtful, "a run on a busy machine measured again");

    // A good one is kept, however thorough the doubtful one is.
    let mut good = doubtful;
    good["disturbed"] = 0.0.into();
    good["depth"] = "quick".into();
    fs::write(CALIBRATION, serde_json::to_vec(&good).unwrap()).unwrap();
    for args in [&["--quick"][..], &[]] {
        let report = examined(&machine, args);
        assert_eq!(Saved::read(), good, "{args:?}");
        let found = |wanted: fn(&Finding) -> bool| report.findings.iter().any(wanted);
        assert!(found(|f| matches!(f, Finding::Disturbed { .. })), "{:?}", report.findings);
        assert!(found(|f| matches!(f, Finding::EarlierKept { .. })), "{:?}", report.findings);
        assert!(report.gain.contains("doubtful"), "{}", report.gain);
    }
    let output = gleaner(&["run", "--", "true"]);
    assert!(!text(&output.stderr).contains("doubtful"), "{}", text(&output.stderr));
    machine.assert_untouched();
}
