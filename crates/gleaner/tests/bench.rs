//! Runs `gleaner bench` on real but small scenarios.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::levers::Machine;
use common::process::{Running, command, gleaner, text, until};
use gleaner_proto::result::{BenchResult, Ending, Metric, Row, Verdict, Warning};
use gleaner_testing::is_root;
use nix::sys::signal::Signal;
use tempfile::TempDir;

/// A directory with a scenario file and its result file.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new(scenario: &str) -> Self {
        let bench = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(bench.path("scenario.toml"), scenario.replace("$DIR", bench.dir.path().to_str().unwrap()))
            .unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn args(&self) -> [String; 7] {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let (scenario, json, html) = (path("scenario.toml"), path("result.json"), path("result.html"));
        ["bench".into(), "run".into(), scenario, "-o".into(), json, "--html".into(), html]
    }

    fn run(&self) -> Output {
        gleaner(&self.args().each_ref().map(String::as_str))
    }

    fn result(&self) -> BenchResult {
        BenchResult::read(&self.path("result.json")).unwrap()
    }
}

#[track_caller]
fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// Number of lines in a file that commands append to.
fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

const SMALL: &str = r#"
    title = "A small one"
    modes = ["default", "gleaner", "consolidate:1"]
    rounds = 2
    warmup_rounds = 1
    window_s = 0.2

    [[row]]
    workload = "request-response"
    unit = "requests"
    paper = { default = 17.5 }

    [[row]]
    name = "beside another"
    shell = "$GLEANER workload compute --operations 200; echo rate 12.5 p99 3ms"
    metrics = ['rate (?<throughput>[0-9.]+) p99 (?<p99_ms>[0-9.]+)ms']
    co_runners = [{ workload = "compute" }]
"#;

#[test]
fn a_scenario_is_measured_in_every_mode() {
    let Some(machine) = Machine::take() else { return };
    let bench = Bench::new(SMALL);
    let output = bench.run();
    assert_success(&output);
    machine.assert_untouched();
    let table = text(&output.stdout);
    for expected in
        ["A small one", "request-response: requests per second", "consolidate:1", "too few rounds", "17.50"]
    {
        assert!(table.contains(expected), "{expected} is not in\n{table}");
    }
    let report = fs::read_to_string(bench.path("result.html")).unwrap();
    assert!(report.contains("request-response") && report.contains("<svg"));
    let result = bench.result();
    assert_eq!(result.ending, Ending::Complete);
    assert_eq!((result.plan.rounds, result.plan.warmup_rounds), (2, 1));
    assert_interleaved(result.row("request-response").unwrap());
    assert_measured_beside(result.row("beside another").unwrap());
    let few = |w: &Warning| matches!(w, Warning::TooFewRounds { rounds: 2, .. });
    assert!(result.warnings.iter().any(few), "{:?}", result.warnings);
}

/// Of the row with a built-in workload: each round has a sample of every mode, and each sample all metrics.
#[track_caller]
fn assert_interleaved(row: &Row) {
    assert_eq!(row.workload.as_deref(), Some("request-response"));
    for cell in &row.cells {
        assert_eq!(cell.samples.iter().map(|s| s.round).collect::<Vec<_>>(), [0, 1], "{}", cell.mode);
        for sample in &cell.samples {
            let value = |metric| sample.metrics[&metric];
            assert!(value(Metric::Throughput) > 0.0 && value(Metric::WallS) >= 0.2, "{sample:?}");
            assert!(value(Metric::Operations) > 0.0 && value(Metric::SwitchesPerS) > 0.0, "{sample:?}");
            assert!(value(Metric::CpuUserS) + value(Metric::CpuSystemS) > 0.0, "{sample:?}");
            assert_eq!(sample.timeline.is_empty(), cell.mode == "default");
        }
    }
    for round in 0..2 {
        let places = row.cells.iter().map(|cell| cell.samples[round].position);
        let mut places: Vec<usize> = places.collect();
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2], "each mode once in each round");
    }
    let consolidated = row.cell("consolidate:1").unwrap();
    assert!(
        consolidated.command.starts_with("gleaner run --quiet --require --fixed consolidate:1 "),
        "{}",
        consolidated.command
    );
    assert!(consolidated.samples.iter().all(|s| s.timeline.iter().any(|moment| moment.active_vcpus == 1)));
    assert_eq!(row.comparison("gleaner", Metric::Throughput).unwrap().verdict, Verdict::TooFew);
}

/// Of the row with a co-runner and a command that prints its own metrics.
#[track_caller]
fn assert_measured_beside(row: &Row) {
    assert!(row.co_runners[0].starts_with("gleaner workload compute"), "{:?}", row.co_runners);
    let said = &row.cell("default").unwrap().samples[0].metrics;
    assert_eq!((said[&Metric::Throughput], said[&Metric::P99Us]), (12.5, 3000.0));
    assert!(said[&Metric::CoThroughput] > 0.0, "{said:?}");
    let together = &row.cell("default").unwrap().summaries[&Metric::SystemThroughput];
    assert!((together.median - 1.0).abs() < 1e-9, "of two samples the median is their mean: {together:?}");
    assert!(row.comparison("gleaner", Metric::SystemThroughput).is_some());
}

#[test]
fn a_command_that_fails_in_round_three_ends_the_run_in_order() {
    let Some(machine) = Machine::take() else { return };
    let bench = Bench::new(
        r#"
        title = "Fails"
        modes = ["user:marked", "consolidate:1"]
        rounds = 5
        [user.marked]
        set = ["touch $DIR/in-force"]
        unset = ["rm $DIR/in-force"]
        [[row]]
        name = "breaks"
        shell = "echo run >> $DIR/runs; test $(wc -l < $DIR/runs) -le 5 || { echo broken pipe dream; exit 7; }"
        "#,
    );
    let output = bench.run();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("breaks, ") && errors.contains(", round 3: "), "{errors}");
    assert!(errors.contains("broken pipe dream") && errors.contains("exit status: 7"), "{errors}");
    assert_eq!(lines(&bench.path("runs")), 6, "nothing was run after the failure");
    machine.assert_untouched();
    assert!(!bench.path("in-force").exists(), "the user's mode was undone");
    let result = bench.result();
    assert!(matches!(&result.ending, Ending::Failed { round: Some(2), .. }), "{:?}", result.ending);
    let taken: usize = result.rows[0].cells.iter().map(|cell| cell.samples.len()).sum();
    assert_eq!(taken, 5, "what was measured before is there");
}

#[test]
fn ctrl_c_ends_with_what_is_there() {
    let Some(machine) = Machine::take() else { return };
    let bench = Bench::new(
        r#"
        title = "Long"
        modes = ["consolidate:1", "default"]
        rounds = 100
        [[row]]
        name = "first quick, then slow"
        shell = "echo run >> $DIR/runs; test $(wc -l < $DIR/runs) -le 4 || { touch $DIR/slow; exec sleep 600; }"
        "#,
    );
    let mut running = Running::start(&mut command(&bench.args().each_ref().map(String::as_str)));
    until("the fifth sample is taken", || bench.path("slow").exists() || running.has_ended());
    running.signal(Signal::SIGINT);
    let output = running.finish();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    machine.assert_untouched();
    let result = bench.result();
    assert_eq!(result.ending, Ending::Interrupted);
    assert_eq!(result.rows[0].cells.iter().map(|cell| cell.samples.len()).sum::<usize>(), 4);
    assert!(text(&output.stdout).contains("Interrupted"), "{}", text(&output.stdout));
}

#[test]
fn sigterm_ends_a_measurement_with_143() {
    let dir = tempfile::tempdir().unwrap();
    let (result, started) = (dir.path().join("r.json"), dir.path().join("started"));
    let run = ["bench", "run", "--mode", "default", "--rounds", "2", "-o", result.to_str().unwrap(), "--"];
    let shell = format!("touch {}; exec sleep 600", started.display());
    let mut running = Running::start(&mut command(&[&run[..], &["sh", "-c", &shell]].concat()));
    until("the command runs", || started.exists() || running.has_ended());
    running.signal(Signal::SIGTERM);
    let output = running.finish();
    assert_eq!(output.status.code(), Some(143), "{}", text(&output.stderr));
    assert_eq!(BenchResult::read(&result).unwrap().ending, Ending::Interrupted);
}

#[test]
fn a_co_runner_that_ends_too_early_is_an_error() {
    let bench = Bench::new(
        r#"
        title = "Alone"
        modes = ["default"]
        [[row]]
        name = "alone"
        shell = "until [ -s $DIR/pid ] && grep -q ') Z' /proc/$(cat $DIR/pid)/stat; do sleep 0.01; done"
        co_runners = [{ shell = "echo $$ > $DIR/pid" }]
        "#,
    );
    let output = bench.run();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("the co-runner") && errors.contains("before the command did"), "{errors}");
}

#[test]
fn an_expression_that_never_matches_shows_the_output() {
    let args = ["bench", "run", "--mode", "default", "--metric", "tps (?<throughput>[0-9]+)", "--json"];
    let output = gleaner(&[&args[..], &["--", "echo", "usage: bench [-h]"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("never matches") && errors.contains("usage: bench [-h]"), "{errors}");
    let result: BenchResult = serde_json::from_slice(&output.stdout).unwrap();
    assert!(matches!(result.ending, Ending::Failed { round: Some(0), .. }), "{:?}", result.ending);
}

#[test]
fn a_command_that_hangs_is_stopped() {
    let bench = Bench::new(
        r#"
        title = "Hangs"
        modes = ["default"]
        [[row]]
        name = "hangs"
        prepare = "echo prepared > $STATE/file && cp $STATE/file $DIR/prepared"
        shell = "exec sleep 600"
        timeout_s = 0.2
        "#,
    );
    let output = bench.run();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("did not end within 200ms"), "{errors}");
    // What a command prints within so short a time is chance; the output of the preparation is not.
    assert_eq!(fs::read_to_string(bench.path("prepared")).unwrap(), "prepared\n");
}

#[test]
fn precision_ends_a_row_before_its_time() {
    let bench = Bench::new(
        r#"
        title = "Steady"
        modes = ["default"]
        rounds = 6
        max_rounds = 50
        precision = 0.5
        [[row]]
        name = "constant"
        shell = "echo rate 100"
        metrics = ['rate (?<throughput>[0-9]+)']
        "#,
    );
    assert_success(&bench.run());
    let result = bench.result();
    assert_eq!(result.rows[0].cells[0].samples.len(), 6);
    assert_eq!((result.plan.precision, result.plan.max_rounds), (Some(0.5), Some(50)));
}

#[test]
fn a_full_disk_leaves_the_earlier_result() {
    let args = |file: &str| {
        ["bench", "run", "--mode", "default", "--rounds", "1", "-o", file, "--", "true"].map(str::to_owned)
    };
    let run = |file: &str| gleaner(&args(file).each_ref().map(String::as_str));
    let output = run("/dev/full");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("cannot write /dev/full: No space left"),
        "{}",
        text(&output.stderr)
    );
    let Some(disk) = SmallDisk::mount() else { return };
    let file = disk.dir.path().join("r.json");
    fs::write(&file, "earlier").unwrap();
    // Fill the disk.
    let _ = fs::write(disk.dir.path().join("filler"), vec![0; 1 << 20]);
    let output = run(file.to_str().unwrap());
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("No space left on device") && errors.contains("untouched"), "{errors}");
    assert!(text(&output.stdout).contains("true: wall time"), "the table is printed all the same");
    assert_eq!(fs::read_to_string(&file).unwrap(), "earlier");
    let names: Vec<_> = fs::read_dir(disk.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "no temporary file is left: {names:?}");
}

#[test]
fn results_are_compared_and_other_schemas_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (a, b) = (file("a.json"), file("b.json"));
    for file in [&a, &b] {
        let run = ["bench", "run", "--mode", "default", "--rounds", "2", "-q", "-o", file, "--", "true"];
        assert_success(&gleaner(&run));
    }
    let output = gleaner(&["bench", "compare", &a, &b]);
    assert_success(&output);
    assert!(text(&output.stdout).contains("true"), "{}", text(&output.stdout));
    let output = gleaner(&["bench", "compare", &a, &b, "--json"]);
    let compared: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!compared["lines"].as_array().unwrap().is_empty(), "{compared}");

    let other = fs::read_to_string(&b).unwrap().replacen("\"schema\": 1", "\"schema\": 99", 1);
    fs::write(&b, other).unwrap();
    let output = gleaner(&["bench", "compare", &a, &b]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("schema 99") && errors.contains("reads schema 1"), "{errors}");
}

/// A file system of 64 KiB, unmounted when dropped.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        if !is_root() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "gleaner-test"]).arg(dir.path());
        assert!(mount.status().unwrap().success());
        Some(Self { dir })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.dir.path()).status();
    }
}
