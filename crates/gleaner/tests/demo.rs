//! What a newcomer tries first: `gleaner demo`, which starts `gleaner run`, and the first commands in the README.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::path::Path;
use std::process::Command;

use common::levers::{Levers, Machine};
use common::process::{GLEANER, Running, command, gleaner, text, until};
use nix::sys::signal::Signal;

#[test]
fn demo_compares_a_workload_with_and_without() {
    let Some(machine) = Machine::take() else { return };
    let args = ["demo", "--rounds", "2", "--seconds", "0.3", "--only", "request-response", "--json"];
    let output = gleaner(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &report["rows"][0];
    assert_eq!(row["workload"], "request-response");
    for way in ["plain", "gleaner"] {
        let samples = row[way].as_array().unwrap();
        assert_eq!(samples.len(), 2);
        assert!(samples.iter().all(|s| s["ops_per_s"].as_f64().unwrap() > 0.0), "{row}");
    }
    let ratio = |name: &str| row["ratio"][name].as_f64().unwrap();
    assert!(ratio("lowest") <= ratio("of_medians") && ratio("of_medians") <= ratio("highest"), "{row}");
    assert!(row["kept"].as_str().unwrap().contains("% of the time"), "{row}");
    machine.assert_untouched();
}

#[test]
fn ctrl_c_ends_the_demo_after_its_gleaner_has_put_the_machine_back() {
    let Some(machine) = Machine::take() else { return };
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let args = ["demo", "--rounds", "1000", "--seconds", "3", "--only", "request-response"];
        let mut demo = Running::start(&mut command(&args));
        until("its Gleaner holds the machine", || Levers::read().groups != machine.before.groups);
        demo.signal(signal);
        assert_eq!(demo.wait().code(), Some(status), "{signal}");
        machine.assert_untouched();
    }
}

#[test]
fn the_first_run_of_the_readme_works_on_a_fresh_machine() {
    let Some(machine) = Machine::take() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let section = readme.split("## The two commands").nth(1).unwrap();
    let mut commands = section.lines().filter_map(|line| line.strip_prefix("    "));
    assert!(commands.next().unwrap().starts_with("make demo"), "{section}");
    assert!(commands.next().unwrap().starts_with("make test"), "{section}");
    // There might be no release build here, but this one.
    let line = commands.find(|command| command.starts_with("target/release/gleaner ")).unwrap();
    let line = line.replace("target/release/gleaner", GLEANER);
    // No programs but those of the build and the base system.
    let mut shell = Command::new("/bin/sh");
    let output = shell.args(["-c", &line]).env("PATH", "/usr/bin:/bin").current_dir(root).output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{line}: {stderr}");
    assert!(stdout.contains("per second") && stderr.starts_with("gleaner: "), "{line}: {stdout}{stderr}");
    machine.assert_untouched();
}

#[test]
fn wrong_usage_is_reported() {
    for args in [["demo", "--rounds", "0"], ["demo", "--only", "nothing"], ["demo", "--seconds", "0"]] {
        let output = gleaner(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}
