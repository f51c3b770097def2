//! Runs scenarios with `gleaner-sim`.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gleaner_policy::{Event, Method, Mode, Strategy};
use gleaner_proto::journal::Record;

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gleaner-sim")).args(args).output().unwrap()
}

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_scenario_runs_the_same_twice_and_its_timeline_is_json() {
    let dir = tempfile::tempdir().unwrap();
    let timeline = dir.path().join("timeline.json");
    let journal = dir.path().join("journal");
    let file = scenario("quick.toml");
    let args = ["run", file.to_str().unwrap(), "--json", "--timeline", timeline.to_str().unwrap()];
    let first = sim(&args);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let events = std::fs::read(&timeline).unwrap();
    let second = sim(&[&args[..], &["--journal", journal.to_str().unwrap()]].concat());
    assert!(first.stdout == second.stdout, "the reports differ");
    assert!(events == std::fs::read(&timeline).unwrap(), "the timelines differ");
    let trace: serde_json::Value = serde_json::from_slice(&events).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 1000);
    // A simulated run writes a normal journal, which `gleaner why` reads.
    let records = gleaner_proto::journal::read(&journal).unwrap();
    assert!(records.len() > 10);
}

#[test]
fn a_vm_under_the_strategy_paper_loses_one_vcpu_at_a_time_and_nothing_is_called_proven() {
    let dir = tempfile::tempdir().unwrap();
    let (file, journal) = (dir.path().join("paper.toml"), dir.path().join("journal"));
    let scenario = r#"
        title = "by the paper's rules"
        time = "1s"
        [host]
        cores = 4
        [[vm]]
        name = "vm"
        vcpus = 4
        costs = "atc14-vm"
        policy = "paper"
        [[vm.program]]
        name = "ping-pong"
    "#;
    std::fs::write(&file, scenario).unwrap();
    let output = sim(&["run", file.to_str().unwrap(), "--journal", journal.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = text(&output.stdout);
    assert!(report.contains("Gleaner in vm: by the paper's rules") && !report.contains("proven"), "{report}");
    let records = gleaner_proto::journal::read(&journal).unwrap();
    let Record::Start { config, .. } = &records[0] else { panic!("{:?}", records[0]) };
    assert_eq!((&config.mode, config.method), (&Mode::Paper, Method::Yield));
    let smaller = |record: &Record| match record {
        Record::Decision { event: Event::Consolidated { active, .. }, .. } => Some(active.len()),
        _ => None,
    };
    let first: Vec<usize> = records.iter().filter_map(smaller).take(2).collect();
    assert_eq!(first, [3, 2]);
    let Some(Record::End { summary, .. }) = records.last() else { panic!("{:?}", records.last()) };
    assert_eq!((summary.strategy, summary.proven, summary.refuted), (Strategy::Paper, 0, 0));
    assert!(summary.consolidated >= 2, "{summary:?}");
}

#[test]
fn every_scenario_of_the_repository_can_be_read() {
    let mut count = 0;
    for entry in std::fs::read_dir(scenario("")).unwrap() {
        let path = entry.unwrap().path();
        let read = gleaner_sim::scenario::Scenario::read(&path);
        assert!(read.is_ok(), "{}", read.unwrap_err());
        count += 1;
    }
    assert!(count >= 5);
}

#[test]
fn mistakes_name_file_line_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("wrong.toml");
    std::fs::write(&file, "title = \"x\"\n[host]\ncors = 2\n").unwrap();
    let output = sim(&["run", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("wrong.toml:3: ") && message.contains("did you mean `cores`?"), "{message}");
    let missing = sim(&["run", "/nowhere.toml"]);
    assert!(text(&missing.stderr).contains("cannot read the scenario /nowhere.toml"));
}

#[test]
fn runaway_scenarios_are_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("short.toml");
    let quick = std::fs::read_to_string(scenario("quick.toml")).unwrap();
    std::fs::write(&file, format!("events = 1000\n{quick}")).unwrap();
    let output = sim(&["run", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the event limit was reached"), "{}", text(&output.stderr));
}

#[test]
fn the_library_is_listed_with_its_sources() {
    let list = text(&sim(&["list"]).stdout);
    for name in ["ping-pong", "dedup", "streamcluster", "volrend", "mysql-oltp", "atc14-vm"] {
        assert!(list.contains(name), "{name}");
    }
    assert!(list.contains("fitted to ATC'14"));
}
