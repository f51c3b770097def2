//! Saved records: printed again, and drawn, without root or KVM.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gleaner_testing::host::RECORD;
use gleaner_testing::{skipped, tree::tree};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gleaner-host");

fn run(program: &Path, dir: &Path, args: &[&str]) -> Output {
    Command::new(program).arg("diagnose").args(args).current_dir(dir).output().unwrap()
}

/// What a command prints that succeeds.
fn printed(dir: &Path, args: &[&str]) -> String {
    let output = run(Path::new(PROGRAM), dir, args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Why a command fails.
fn failure(dir: &Path, args: &[&str]) -> String {
    let output = run(Path::new(PROGRAM), dir, args);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{args:?}: {}", said(&output));
    said(&output)
}

#[test]
fn a_record_is_printed_as_it_was_when_it_was_made() {
    let dir = tree(&[("HOST.json", RECORD)]);
    let text = printed(dir.path(), &["--from", "HOST.json"]);
    assert!(text.starts_with("2 VMs in 20.0 s on 4 pCPUs, Linux 6.12.48"), "{text}");
    for line in [
        "ping (libvirt, process 1520): 2 vCPUs, ",
        "  1. wake-ups of idle vCPUs: 65.2 % of the time in which its vCPUs want to run",
        "     - in the guest: run `gleaner`",
        "  timers for halted vCPUs until the vCPU runs: 1330 times, median ",
        "  device interrupts for halted vCPUs until the vCPU runs: 4 times, median ",
        "quiet (",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("exit reason"));
    let all = printed(dir.path(), &["--from", "HOST.json", "--all"]);
    assert!(all.contains("  exit reason ") && all.contains("  vCPU 1 (thread "), "{all}");
    let one = printed(dir.path(), &["--from", "HOST.json", "--vm", "quiet"]);
    assert!(one.starts_with("1 VM in 20.0 s") && !one.contains("ping"), "{one}");
    let json: serde_json::Value =
        serde_json::from_str(&printed(dir.path(), &["--from", "HOST.json", "--json"])).unwrap();
    assert_eq!(json, serde_json::from_str::<serde_json::Value>(RECORD).unwrap());
}

#[test]
fn what_was_not_followed_is_said_again() {
    let missing = r#""missing": [{"what": "hypercalls by kind", "why": {"reason": "not-permitted"}}]"#;
    let record = RECORD.replacen("\"hidden\": []", "\"hidden\": [\"AVIC is on\"]", 1).replacen(
        "\"missing\": []",
        missing,
        1,
    );
    let dir = tree(&[("HOST.json", &record)]);
    let output = run(Path::new(PROGRAM), dir.path(), &["--from", "HOST.json"]);
    let said = said(&output);
    assert!(said.contains("gleaner-host: hypercalls by kind: BPF programs are refused"), "{said}");
    assert!(said.contains("gleaner-host: AVIC is on"), "{said}");
}

#[test]
fn what_is_no_record_is_named_with_the_remedy() {
    let newer = RECORD.replacen("\"format\": 1", "\"format\": 2", 1);
    let dir = tree(&[("HOST.json", RECORD), ("newer.json", &newer), ("other.json", "{}")]);
    let error = failure(dir.path(), &["--from", "newer.json"]);
    assert!(error.contains("newer.json has record format 2") && error.contains("record again"), "{error}");
    let error = failure(dir.path(), &["--from", "other.json"]);
    assert!(error.contains("other.json is not the record of a host"), "{error}");
    assert!(error.contains("gleaner-host diagnose --json"), "{error}");
    let error = failure(dir.path(), &["--from", "none.json"]);
    assert!(error.contains("none.json: No such file or directory"), "{error}");
    let error = failure(dir.path(), &["--from", "HOST.json", "--vm", "pong"]);
    assert!(error.contains("no VM `pong`") && error.contains("ping, quiet"), "{error}");
}

#[test]
fn a_page_does_not_replace_the_record() {
    let dir = tree(&[("HOST.json", RECORD)]);
    let output = run(Path::new(PROGRAM), dir.path(), &["--from", "HOST.json", "--html", "./HOST.json"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{}", said(&output));
    assert!(said(&output).contains("is what is read, and would be overwritten"), "{}", said(&output));
    assert_eq!(fs::read_to_string(dir.path().join("HOST.json")).unwrap(), RECORD);
}

/// A copy of the program in a directory with another program as `gleaner-bench`.
fn beside(script: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tree(&[("HOST.json", RECORD), ("script", script)]);
    let program = dir.path().join("gleaner-host");
    let script = dir.path().join("script");
    for (from, to) in [(Path::new(PROGRAM), &program), (&script, &dir.path().join("gleaner-bench"))] {
        // By another process: a child that another test starts meanwhile would have the file open for writing, and nobody
        // could run it.
        let copied = Command::new("install").args(["-m", "755"]).arg(from).arg(to).status().unwrap();
        assert!(copied.success());
    }
    (dir, program)
}

#[test]
fn the_program_that_draws_gets_the_record_and_the_place() {
    let (dir, program) = beside("#!/bin/sh\necho \"$*\" >arguments\ncat >\"$2\"\n");
    let output = run(&program, dir.path(), &["--from", "HOST.json", "--vm", "ping", "--html", "out.html"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output), "gleaner-host: wrote out.html\n");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("1 VM in"), "the text is printed, too");
    assert_eq!(fs::read_to_string(dir.path().join("arguments")).unwrap(), "host-page out.html\n");
    let drawn: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("out.html")).unwrap()).unwrap();
    assert_eq!(
        (&drawn["format"], &drawn["vms"][0]["name"], &drawn["vms"][1]),
        (&1.into(), &"ping".into(), &serde_json::Value::Null)
    );
}

#[test]
fn a_page_that_cannot_be_drawn_is_a_failure_that_says_why() {
    let (dir, program) = beside("#!/bin/sh\necho 'no ink' >&2\nexit 1\n");
    let output = run(&program, dir.path(), &["--from", "HOST.json", "--html", "out.html"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("the page was not drawn: no ink"), "{}", said(&output));
    assert!(!output.stdout.is_empty(), "the text is there all the same");

    // Before anything is followed or printed: a place that cannot be written, a program that is missing.
    let output = run(&program, dir.path(), &["--from", "HOST.json", "--html", "no/such/dir.html"]);
    assert!(
        said(&output).contains("cannot write no/such/dir.html") && output.stdout.is_empty(),
        "{output:?}"
    );
    fs::remove_file(dir.path().join("gleaner-bench")).unwrap();
    let output = run(&program, dir.path(), &["--from", "HOST.json", "--html", "out.html"]);
    assert!(said(&output).contains("this needs gleaner-bench") && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn the_real_program_draws_the_page() {
    if !Path::new(PROGRAM).with_file_name("gleaner-bench").exists() {
        return skipped("needs `cargo build -p gleaner-bench`");
    }
    let dir = tree(&[("HOST.json", RECORD)]);
    printed(dir.path(), &["--from", "HOST.json", "-o", "out.html"]);
    let page = fs::read_to_string(dir.path().join("out.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<h2>ping</h2>"), "{page}");
}
