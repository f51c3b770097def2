//! `gleaner bench` with real programs, and with two identical modes.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs;
use std::process::Command;

use gleaner_bench::adapters::Adapter;
use gleaner_proto::result::{BenchResult, Ending, Metric, Verdict};

/// Runs the scenario `text`.
fn run(text: &str) -> BenchResult {
    let dir = tempfile::tempdir().unwrap();
    let (scenario, result) = (dir.path().join("scenario.toml"), dir.path().join("result.json"));
    fs::write(&scenario, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_gleaner"))
        .args(["bench", "run", "--quiet"])
        .arg(&scenario)
        .arg("-o")
        .arg(&result)
        .arg("--html")
        .arg(dir.path().join("result.html"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    BenchResult::read(&result).unwrap()
}

/// Measures each adapter whose program is in Debian, on a small input. `make test` installs the programs.
#[test]
fn programs_from_debian_are_measured() {
    let small = [
        ("pbzip2", "megabytes = 2"),
        ("vips", "pixels = 300"),
        ("x264", "megabytes = 2"),
        ("redis", "seconds = 1"),
        ("wrk", "seconds = 1, connections = 2"),
        ("pgbench", "seconds = 1, connections = 2"),
        ("sysbench-oltp", "seconds = 1"),
    ];
    let mut rows = Vec::new();
    for (name, parameters) in small {
        match Adapter::find(name).unwrap().available() {
            Ok(()) => rows.push(format!("[[row]]\nadapter = \"{name}\"\nparameters = {{ {parameters} }}\n")),
            Err(missing) => gleaner_testing::skipped(missing),
        }
    }
    if rows.is_empty() {
        return;
    }
    let result = run(&format!("title = \"t\"\nmodes = [\"default\"]\nrounds = 1\n{}", rows.concat()));
    assert_eq!(result.ending, Ending::Complete);
    for row in &result.rows {
        let adapter = Adapter::find(&row.name).unwrap();
        let values = row.cells[0].values(row.primary);
        assert!(values.iter().all(|value| *value > 0.0) && values.len() == 1, "{}: {values:?}", row.name);
        let speed = if adapter.unit.is_empty() { Metric::WallS } else { Metric::Throughput };
        assert_eq!((row.primary, row.unit.as_str()), (speed, adapter.unit), "{}", row.name);
    }
}

#[test]
fn a_program_that_is_not_there_is_named_with_its_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("scenario.toml");
    let text = "title = \"t\"\nmodes = [\"default\"]\n[[row]]\nadapter = \"splash-3\"\nparameters = { binary = \"/no/FFT\" }\n";
    fs::write(&scenario, text).unwrap();
    let bench = |scenario| {
        let output = Command::new(env!("CARGO_BIN_EXE_gleaner"))
            .args(["bench", "run", "--json"])
            .arg(scenario)
            .output();
        let output = output.unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let printed = bench(&scenario);
    assert!(printed.contains("splash-3: `/no/FFT` is not found: build SPLASH-3"), "{printed}");
    fs::write(&scenario, text.replace("splash-3", "splash3")).unwrap();
    let printed = bench(&scenario);
    assert!(printed.contains(".toml:4: ") && printed.contains("did you mean `splash-3`?"), "{printed}");
}

/// Runs a hundred measurements of two identical modes. At least 95 must find no difference.
#[test]
#[ignore = "long: make test-long"]
fn equal_modes_are_found_equal_in_95_of_100_runs() {
    let workloads = ["request-response", "pipeline", "barrier", "convoy", "compute"];
    let mut wrong = Vec::new();
    for number in 0..100 {
        let workload = workloads[number % workloads.len()];
        let result = run(&format!(
            "title = \"A/A\"\nmodes = [\"default\", \"user:same\"]\nrounds = 8\nwindow_s = 0.1\nseed = {number}\n\
             [user.same]\nset = []\nunset = []\n[[row]]\nworkload = \"{workload}\"\n"
        ));
        let comparison = result.rows[0].comparison("user:same", Metric::Throughput).unwrap();
        if comparison.verdict != Verdict::NoDifference {
            wrong.push(format!("{workload}, seed {number}: {comparison:?}"));
        }
    }
    println!("no difference in {} of 100 runs", 100 - wrong.len());
    assert!(wrong.len() <= 5, "{}", wrong.join("\n"));
}
