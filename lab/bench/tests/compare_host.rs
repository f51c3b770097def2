//! A native and a virtualised result, and the host's record of the virtualised run.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/results.rs"]
mod results;

use std::path::Path;
use std::process::{Command, Output};

use gleaner_bench::compare::host::{Cycles, JoinError};
use gleaner_bench::compare::overhead::Scenario;
use gleaner_bench::compare::{CompareError, Compared, compare, compare_nested, compare_with_host};
use gleaner_host_record::{Reason, Report};
use gleaner_proto::result::{BenchResult, Cell, Metric, Sample};
use gleaner_testing::host::RECORD;
use results::{result, row};

const COMMAND: &str = "gleaner workload ping-pong --json --seconds 5";

fn record() -> Report {
    serde_json::from_str(RECORD).unwrap()
}

/// Four samples one after the other, of 100,000 turns each, with these times in s.
fn cell(mode: &str, wall_s: f64, user_s: f64, system_s: f64) -> Cell {
    let turns = 100_000.0;
    let sample = |round: usize| {
        let metrics = [
            (Metric::WallS, wall_s),
            (Metric::Operations, turns),
            (Metric::Throughput, turns / wall_s),
            (Metric::CpuUserS, user_s),
            (Metric::CpuSystemS, system_s),
            (Metric::CpuSPerOp, (user_s + system_s) / turns),
        ];
        let start_s = wall_s * round as f64;
        Sample { round, position: 0, start_s, metrics: metrics.into(), timeline: vec![] }
    };
    Cell {
        mode: mode.into(),
        command: COMMAND.into(),
        samples: (0..4).map(sample).collect(),
        summaries: [].into(),
    }
}

/// 12 us of CPU time a turn, a quarter of them in user mode.
fn native() -> BenchResult {
    result(false, &["default"], vec![row("turns", &[], vec![cell("default", 2.0, 0.3, 0.9)])])
}

/// The run that the fixture is a record of: 20 s on the VM `ping`, by its own account 35 us of CPU time a turn.
fn virtualised(co_runners: &[&str]) -> BenchResult {
    let cells = vec![cell("default", 5.0, 0.4, 3.1)];
    let mut run = result(true, &["default"], vec![row("turns", co_runners, cells)]);
    run.environment.vcpus = 2;
    run
}

fn joined(run: &BenchResult, record: &Report) -> Result<Compared, CompareError> {
    compare_with_host(&native(), run, record, Some("ping"))
}

fn refused(run: &BenchResult, record: &Report, vm: Option<&str>) -> JoinError {
    match compare_with_host(&native(), run, record, vm) {
        Err(CompareError::Host(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn cycles(compared: &Compared) -> &Cycles {
    compared.overheads[0].cycles.as_ref().unwrap()
}

#[track_caller]
fn close(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-4 * expected.abs().max(1.0), "{value} for {expected}");
}

/// The VM used 7.63924 s in the guest and 10.75216 s in the hypervisor for 400,000 turns: 19.0981 us and 26.8804 us a turn,
/// of which the native system has 12 us, 3 of them in user mode.
#[test]
fn delta_eta_r_has_the_hypervisors_cycles_in_it_and_is_split() {
    let compared = joined(&virtualised(&[]), &record()).unwrap();
    let overhead = &compared.overheads[0].overhead;
    assert_eq!(overhead.scenario, Scenario::Uc);
    close(overhead.delta_eta_r.value, (19.0981 + 26.8804) / 12.0 - 1.0);
    close(overhead.delta_eta_t.value, 5.0 * 2.0 / (2.0 * 4.0) - 1.0);
    close(overhead.omega.value, (1.0 + overhead.delta_eta_t.value) / (1.0 + overhead.delta_eta_r.value));
    let of = cycles(&compared);
    close(1e6 * of.cpu_s_per_op, 45.9785);
    close(of.guest.delta_eta_r, 19.0981 / 12.0 - 1.0);
    close(of.hypervisor.delta_eta_r, 26.8804 / 12.0);
    close(of.user.unwrap().delta_eta_r, (4.0 - 3.0) / 12.0);
    close(of.kernel.unwrap().delta_eta_r, (15.0981 - 9.0) / 12.0);
    // Without the host, it is a lower bound.
    let alone = compare(&native(), &virtualised(&[])).unwrap();
    close(alone.overheads[0].overhead.delta_eta_r.value, 35.0 / 12.0 - 1.0);
    assert!(alone.overheads[0].cycles.is_none() && alone.host.is_none());
    assert!(alone.to_string().contains("lower bound") && !compared.to_string().contains("lower bound"));
}

#[test]
fn the_hypervisors_part_is_split_by_exit_reason() {
    let compared = joined(&virtualised(&[]), &record()).unwrap();
    let of = cycles(&compared);
    let expected = [
        (Reason::Hlt, 2.0, 16.0),
        (Reason::TscDeadline, 4.0, 5.2),
        (Reason::Ipi, 2.0, 4.4),
        (Reason::Eoi, 2.0, 1.2),
        (Reason::Interrupt, 0.025, 0.075),
    ];
    for (found, (reason, exits, us)) in of.reasons.iter().zip(expected) {
        assert_eq!((found.reason, found.group), (reason, reason.group()));
        close(found.exits_per_op, exits);
        close(1e6 * found.part.cpu_s_per_op, us);
        close(found.part.delta_eta_r, us / 12.0);
    }
    close(of.reasons.iter().map(|reason| reason.part.delta_eta_r).sum(), of.hypervisor.delta_eta_r);
}

#[test]
fn two_instances_share_what_the_vm_used() {
    let compared = joined(&virtualised(&[COMMAND]), &record()).unwrap();
    assert_eq!(compared.overheads[0].overhead.scenario, Scenario::Oc);
    let of = cycles(&compared);
    close(compared.overheads[0].overhead.delta_eta_r.value, 45.9785 / 2.0 / 12.0 - 1.0);
    close(of.hypervisor.delta_eta_r, 26.8804 / 2.0 / 12.0);
    // The other instance has as much user time as the one that was measured.
    close(1e6 * of.user.unwrap().cpu_s_per_op, 4.0);
    // Two native instances cost 12 us each, too.
    let mut two = native();
    two.rows[0].co_runners = vec![COMMAND.to_owned()];
    let compared = compare_with_host(&two, &virtualised(&[COMMAND]), &record(), Some("ping")).unwrap();
    assert_eq!(compared.overheads[0].overhead.scenario, Scenario::Oc2);
    close(compared.overheads[0].overhead.delta_eta_r.value, 45.9785 / 2.0 / 12.0 - 1.0);
    close(cycles(&compared).user.unwrap().delta_eta_r, (4.0 - 3.0) / 12.0);
}

#[test]
fn warm_up_rounds_are_work_too() {
    let mut run = virtualised(&[]);
    run.plan.warmup_rounds = 4;
    run.rows[0].cells[0].samples.iter_mut().for_each(|sample| sample.start_s += 20.0);
    let record = Report { span_ns: 40_000_000_000, ..record() };
    close(1e6 * cycles(&joined(&run, &record).unwrap()).cpu_s_per_op, 45.9785 / 2.0);
}

#[test]
fn the_text_has_the_parts_and_the_caveats() {
    let mut record = record();
    record.hidden = vec!["AVIC is on".to_owned()];
    let text = joined(&virtualised(&[]), &record).unwrap().to_string();
    for part in [
        "record of VM ping (20.0 s, 4 pCPUs, Linux 6.12.48+deb13-amd64)",
        "turns, default  UC                   per unit   of C_v       δη_r      exits",
        "  guest                               19.1 us   41.5 %    +59.2 %",
        "    user                              4.00 us    8.7 %     +8.3 %",
        "    kernel                            15.1 us   32.8 %    +50.8 %",
        "  hypervisor                          26.9 us   58.5 %   +224.0 %",
        "    HLT (scheduling)                  16.0 us   34.8 %   +133.3 %       2.00",
        "    TSC_DEADLINE                      5.20 us   11.3 %    +43.3 %       4.00",
        "threads of the host that are no vCPUs used 0.48 s, 2.6 %",
        "on the host: AVIC is on",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    // `quiet` hardly ran, and the record is as long as the run.
    assert!(!text.contains("other VMs") && !text.contains("MMIO") && !text.contains("spans"), "{text}");
    record.vms[1].times.guest_ns = 9_000_000_000;
    record.span_ns = 24_000_000_000;
    record.vms[0].vcpus[0].unpaired = 400_000;
    let text = joined(&virtualised(&[]), &record).unwrap().to_string();
    assert!(text.contains("other VMs used the host meanwhile: quiet (9.0 s)"), "{text}");
    assert!(text.contains("the record spans 24.0 s, the run 20.0 s"), "{text}");
    assert!(text.contains("10 % of the exits were handled at once"), "{text}");
    let json = serde_json::to_value(joined(&virtualised(&[]), &record).unwrap()).unwrap();
    assert_eq!(
        (&json["host"]["vm"], &json["overheads"][0]["cycles"]["reasons"][0]["reason"]),
        (&"ping".into(), &"hlt".into())
    );
}

#[test]
fn a_record_that_is_not_of_the_run_is_refused_with_the_remedy() {
    let run = virtualised(&[]);
    // Its length.
    for seconds in [19, 26, 3600] {
        let record = Report { span_ns: seconds * 1_000_000_000, ..record() };
        let error = refused(&run, &record, Some("ping"));
        assert!(matches!(error, JoinError::OtherSpan { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("spans {seconds}.0 s and the run 20.0 s")), "{text}");
        assert!(text.contains("--seconds 22"), "{text}");
    }
    assert!(joined(&run, &Report { span_ns: 25_000_000_000, ..record() }).is_ok());
    // Its VM.
    assert!(matches!(refused(&run, &record(), None), JoinError::Record(_)));
    let error = refused(&run, &record(), Some("quiet"));
    assert!(matches!(error, JoinError::OtherTime { .. }), "{error}");
    assert!(error.to_string().contains("used 14.0 s of CPU time"), "{error}");
    let mut large = virtualised(&[]);
    large.environment.vcpus = 4;
    let error = refused(&large, &record(), Some("ping"));
    assert!(error.to_string().contains("use 4 vCPUs, and VM `ping` of the host's record has 2"), "{error}");
}

#[test]
fn a_run_that_the_record_cannot_be_divided_among_is_refused() {
    let mut two = virtualised(&[]);
    two.rows[0].cells.push(cell("gleaner", 5.0, 0.4, 3.1));
    let error = refused(&two, &record(), Some("ping")).to_string();
    assert!(error.contains("turns in mode default, turns in mode gleaner: measure one row"), "{error}");
    // A cell without samples is none.
    two.rows[0].cells[1].samples.clear();
    assert!(joined(&two, &record()).is_ok());
    two.rows[0].cells[0].samples.clear();
    assert!(refused(&two, &record(), Some("ping")).to_string().contains("measured nothing"));
    let mut gaps = virtualised(&[]);
    for sample in &mut gaps.rows[0].cells[0].samples {
        sample.metrics.insert(Metric::WallS, 1.0);
    }
    let error = refused(&gaps, &record(), Some("ping"));
    assert!(matches!(error, JoinError::NotCovered { .. }), "{error}");
    let mut idle = virtualised(&[]);
    for sample in &mut idle.rows[0].cells[0].samples {
        sample.metrics.insert(Metric::CpuSPerOp, 0.0);
    }
    assert!(matches!(refused(&idle, &record(), Some("ping")), JoinError::NoCpuTime));
}

#[test]
fn without_a_native_result_of_the_same_work_there_is_nothing_to_join() {
    let run = virtualised(&[]);
    let error = compare_with_host(&run, &run, &record(), Some("ping")).unwrap_err().to_string();
    assert!(error.contains("both are of virtual machines"), "{error}");
    let error = compare_with_host(&native(), &native(), &record(), Some("ping")).unwrap_err().to_string();
    assert!(error.contains("both are native"), "{error}");
    let mut other = native();
    other.rows[0].cells[0].command = "gleaner workload barrier".into();
    let error = compare_with_host(&other, &run, &record(), Some("ping")).unwrap_err();
    assert!(matches!(error, CompareError::Host(JoinError::NoRow)), "{error}");
}

/// A host that is a virtual machine, too.
fn nested_host() -> BenchResult {
    let mut host = native();
    host.environment.virtualised = true;
    host.environment.hypervisor = "TCGTCGTCGTCG".into();
    host.environment.kernel = record().host.kernel;
    host
}

#[test]
fn a_host_that_is_a_virtual_machine_is_taken_for_native_on_request() {
    let run = virtualised(&[]);
    let error = compare_with_host(&nested_host(), &run, &record(), Some("ping")).unwrap_err().to_string();
    assert!(error.contains("both are of virtual machines") && error.contains("--nested"), "{error}");
    let nested = compare_nested(&nested_host(), &run, &record(), Some("ping")).unwrap();
    let plain = joined(&run, &record()).unwrap();
    assert_eq!(nested.overheads, plain.overheads);
    let note = "the native side was measured in a virtual machine, too (TCGTCGTCGTCG)";
    assert!(nested.to_string().contains(note) && !plain.to_string().contains("too ("), "{nested}");
    // A native result is that with the option, too; two of them are no pair.
    assert_eq!(compare_nested(&native(), &run, &record(), Some("ping")).unwrap().overheads, plain.overheads);
    assert!(compare_nested(&native(), &native(), &record(), Some("ping")).is_err());
}

#[test]
fn a_native_side_of_another_host_than_the_records_is_refused() {
    let refused = |host: &BenchResult| {
        compare_nested(host, &virtualised(&[]), &record(), Some("ping")).unwrap_err().to_string()
    };
    let mut other = nested_host();
    other.environment.kernel = "6.1.0".into();
    let error = refused(&other);
    assert!(
        error.contains("A had Linux 6.1.0 and 4 CPUs, the host has Linux 6.12.48+deb13-amd64 and 4"),
        "{error}"
    );
    let mut larger = nested_host();
    larger.environment.vcpus = 8;
    assert!(refused(&larger).contains("and 8 CPUs"), "{}", refused(&larger));
}

fn gleaner_bench(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gleaner-bench"));
    command.current_dir(dir).args(["compare", "native.json", "vm.json"]).args(args).output().unwrap()
}

#[test]
fn the_command_joins_and_says_what_it_cannot_join() {
    let dir = gleaner_testing::tree::tree(&[("host.json", RECORD)]);
    native().write(&dir.path().join("native.json")).unwrap();
    virtualised(&[]).write(&dir.path().join("vm.json")).unwrap();
    let output = gleaner_bench(dir.path(), &["--host", "host.json", "--vm", "ping"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("hypervisor"), "{output:?}");
    for (args, status, said) in [
        (&["--host", "host.json"][..], 1, "has 2 VMs: choose one with --vm: ping, quiet"),
        (&["--host", "host.json", "--vm", "pong"], 1, "has no VM `pong`"),
        (&["--host", "vm.json"], 1, "vm.json is not the record of a host"),
        (&["--host", "none.json"], 1, "cannot read the host's record none.json"),
        (&["--vm", "ping"], 2, "--host <HOST.json>"),
        (&["--nested"], 2, "--host <HOST.json>"),
    ] {
        let output = gleaner_bench(dir.path(), args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(status) && text.contains(said), "{args:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
    }
    nested_host().write(&dir.path().join("native.json")).unwrap();
    let output = gleaner_bench(dir.path(), &["--host", "host.json", "--vm", "ping", "--nested"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("in a virtual machine, too"), "{output:?}");
}
