//! Commands whose standard output is closed or full, or that name the same file twice.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::levers::Machine;
use common::process::{command, gleaner, text};
use nix::sys::signal::Signal;

const FULL: &str = ": cannot write to the standard output: No space left on device (os error 28)\n";

/// Runs Gleaner with its standard output on a pipe without a reader.
fn closed(args: &[&str]) -> Output {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    command(args).stdout(writer).output().unwrap()
}

fn full(args: &[&str]) -> Output {
    command(args).stdout(OpenOptions::new().write(true).open("/dev/full").unwrap()).output().unwrap()
}

#[track_caller]
fn assert_quiet_end(output: &Output, what: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.signal(), Some(Signal::SIGPIPE as i32), "{what}: {:?} {said}", output.status);
    assert!(said.is_empty(), "{what}: {said}");
}

#[track_caller]
fn assert_full(output: &Output, what: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{what}: {said}");
    assert!(
        said.starts_with("gleaner") && said.ends_with(FULL) && said.lines().count() == 1,
        "{what}: {said}"
    );
}

fn source(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

/// A journal made by the simulator.
fn journal(dir: &Path) -> String {
    let file = dir.join("journal").to_str().unwrap().to_owned();
    let output = gleaner(&["sim", "run", &source("lab/sim/scenarios/quick.toml"), "--journal", &file]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    file
}

fn measured(dir: &Path) -> String {
    let file = dir.join("result.json").to_str().unwrap().to_owned();
    let run = ["bench", "run", "--quiet", "--mode", "default", "--rounds", "1", "-o", &file, "--", "true"];
    let output = gleaner(&run);
    assert!(output.status.success(), "{}", text(&output.stderr));
    file
}

#[test]
fn a_closed_or_full_standard_output_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, result) = (journal(dir.path()), measured(dir.path()));
    for args in [
        &["why", &journal][..],
        &["why", "--json", &journal],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["run", "--help"],
        &["--version"],
        &["bench", "list"],
        &["bench", "list", "--json"],
        &["bench", "compare", &result, &result],
        &["sim", "list"],
        &["sim", "run", &source("lab/sim/scenarios/quick.toml")],
        &["sim", "reproduce", "--paper", "hp3c20"],
        &["workload", "compute", "--operations", "1"],
        &["top", "--once", "--interval", "0.01", "--no-trace"],
    ] {
        assert_quiet_end(&closed(args), &args.join(" "));
        assert_full(&full(args), &args.join(" "));
    }
}

#[test]
fn commands_with_levers_put_them_back_before_a_closed_or_full_standard_output_ends_them() {
    let Some(machine) = Machine::take() else { return };
    for args in
        [&["doctor", "--quick"][..], &["demo", "--rounds", "1", "--seconds", "0.05", "--only", "compute"]]
    {
        assert_quiet_end(&closed(args), &args.join(" "));
        machine.assert_untouched();
        assert_full(&full(args), &args.join(" "));
        machine.assert_untouched();
    }
}

#[test]
fn a_closed_standard_output_is_no_reason_to_lose_a_measurement() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.json");
    let path = file.to_str().unwrap();
    let output = closed(&["bench", "run", "--mode", "default", "--rounds", "1", "-o", path, "--", "true"]);
    assert_eq!(output.status.signal(), Some(Signal::SIGPIPE as i32), "{}", text(&output.stderr));
    assert!(gleaner_proto::result::BenchResult::read(&file).is_ok());
}

/// Runs a command that must be refused, and checks that it changed nothing.
#[track_caller]
fn assert_refused(args: &[&str], keeps: &[PathBuf]) {
    let before: Vec<Option<Vec<u8>>> = keeps.iter().map(|path| fs::read(path).ok()).collect();
    let output = gleaner(args);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert!(said.contains("would be overwritten") || said.contains("for two outputs"), "{args:?}: {said}");
    let after: Vec<Option<Vec<u8>>> = keeps.iter().map(|path| fs::read(path).ok()).collect();
    assert!(before == after, "{args:?}");
}

#[test]
fn no_output_takes_the_place_of_a_file_that_is_read_or_of_another_output() {
    let dir = tempfile::tempdir().unwrap();
    let result = measured(dir.path());
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    symlink("result.json", at("link")).unwrap();
    fs::hard_link(&result, at("hard")).unwrap();
    let kept = [PathBuf::from(&result), PathBuf::from(at("x"))];
    for output in [result.clone(), at("link"), at("hard")] {
        assert_refused(&["report", &result, "-o", &output], &kept);
    }
    assert_refused(&["report", &result, "-o", &at("samples-1.svg"), "--svg", &at(".")], &kept);
    let run =
        ["bench", "run", "--mode", "default", "--rounds", "1", "-o", &at("x"), "--html", &at("x"), "--"];
    assert_refused(&[&run[..], &["touch", &at("ran")]].concat(), &kept);
    assert!(!Path::new(&at("ran")).exists(), "it is refused before anything is measured");
    let scenario = at("scenario.toml");
    fs::copy(source("lab/bench/scenarios/quick.toml"), &scenario).unwrap();
    assert_refused(&["bench", "run", &scenario, "-o", &scenario], &[PathBuf::from(&scenario)]);
    let simulated = at("simulated.toml");
    fs::copy(source("lab/sim/scenarios/quick.toml"), &simulated).unwrap();
    let kept = [PathBuf::from(&simulated)];
    assert_refused(&["sim", "run", &simulated, "--journal", &simulated], &kept);
    assert_refused(&["sim", "run", &simulated, "--journal", &at("y"), "--timeline", &at("y")], &kept);
    symlink("simulated.toml", at("sweep.csv")).unwrap();
    assert_refused(&["sim", "sweep", &simulated, "-o", &at("sweep.csv")], &kept);
}
