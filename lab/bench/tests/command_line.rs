//! `gleaner-bench` as a program.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs::{self, OpenOptions};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run(args: &[&str], stdout: impl Into<Stdio>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gleaner-bench")).args(args).stdout(stdout).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_closed_or_full_standard_output_is_no_panic() {
    for args in [&["--help"][..], &["step-load", "--steps", "1"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = run(args, writer);
        assert_eq!((output.status.signal(), said(&output).as_str()), (Some(libc::SIGPIPE), ""), "{args:?}");
        let output = run(args, OpenOptions::new().write(true).open("/dev/full").unwrap());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(
            said(&output).starts_with("gleaner-bench: cannot write to the standard output: "),
            "{args:?}"
        );
    }
}

#[test]
fn wrong_usage_is_status_2_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x");
    let file = file.to_str().unwrap();
    let twice = run(&["servers", "--output", file, "--markdown", file], Stdio::null());
    assert_eq!(twice.status.code(), Some(2), "{}", said(&twice));
    assert!(said(&twice).contains("is named for two outputs"), "{}", said(&twice));
    let unknown = run(&["servers", "--rows", "no-such-row"], Stdio::null());
    assert_eq!(unknown.status.code(), Some(2), "{}", said(&unknown));
    assert!(!Path::new(file).exists());
}

#[test]
fn names_that_do_not_exist_are_reported_with_file_line_and_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (scenario, json, html) = (file("scenario.toml"), file("result.json"), file("result.html"));
    let head = "title = 'T'\nmodes = ['default']\n";
    for (text, expected) in [
        (format!("{head}roundz = 3\n"), ["scenario.toml:3: ", "did you mean `rounds`?"]),
        (
            format!("{head}[[row]]\nworkload = 'barier'\n"),
            ["scenario.toml:4: unknown workload `barier`", "did you mean `barrier`?"],
        ),
        (
            "title = 'T'\nmodes = ['gleanr']\n".to_owned(),
            ["scenario.toml:2: unknown mode `gleanr`", "did you mean `gleaner`?"],
        ),
    ] {
        fs::write(&scenario, text).unwrap();
        let output = run(&["run", &scenario, "-o", &json, "--html", &html], Stdio::piped());
        let errors = said(&output);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(expected.iter().all(|part| errors.contains(part)), "{errors}");
        assert!(!Path::new(&json).exists());
    }
    for (args, expected) in [
        (["run", "quik"].as_slice(), "did you mean `quick`?"),
        (&["run", "--workload", "convoi"], "a similar value exists: 'convoy'"),
        (&["run", "--mode", "user:own", "--", "true"], "only a scenario file"),
        (&["run", "--mode", "defualt", "--", "true"], "did you mean `default`?"),
        (&["run"], "SCENARIO"),
    ] {
        let output = run(args, Stdio::piped());
        assert!(!output.status.success());
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
}

#[test]
fn what_exists_is_listed() {
    let output = run(&["list", "--json"], Stdio::piped());
    assert!(output.status.success(), "{}", said(&output));
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (part, name) in [("workloads", "barrier"), ("modes", "idlepoll"), ("scenarios", "quick")] {
        let entries = list[part].as_array().unwrap();
        assert!(entries.iter().any(|entry| entry["name"] == name), "{part}: {entries:?}");
    }
    let list = run(&["list"], Stdio::piped()).stdout;
    assert!(String::from_utf8_lossy(&list).contains("request-response"));
}

#[test]
fn a_mode_that_consolidates_on_more_vcpus_than_there_are_is_wrong_usage() {
    let args = ["run", "--mode", "default,consolidate:999", "--", "true"];
    let output = run(&args, Stdio::piped());
    let printed = said(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("`consolidate:999` needs 999 vCPUs, but there "), "{printed}");
}

/// Runs the program in `dir` with this standard input.
fn run_in(dir: &Path, args: &[&str], input: &str) -> Output {
    use std::io::Write as _;
    let mut child = Command::new(env!("CARGO_BIN_EXE_gleaner-bench"))
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that fails early does not read it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn the_record_of_a_host_becomes_a_page_and_plots() {
    let record = gleaner_testing::host::RECORD;
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("HOST.json"), record).unwrap();
    let output = run_in(dir.path(), &["report", "HOST.json", "--svg", "plots"], "");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).ends_with("gleaner-bench: wrote HOST.html\n"), "{}", said(&output));
    let page = fs::read_to_string(dir.path().join("HOST.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("KVM host: 2 VMs on 4 pCPUs"), "{page}");
    let plot = fs::read_to_string(dir.path().join("plots/groups.svg")).unwrap();
    assert!(plot.contains("<svg") && plot.contains("TSC_DEADLINE"), "{plot}");

    // The same through a pipe, as gleaner-host draws it.
    let output = run_in(dir.path(), &["host-page", "piped.html"], record);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read_to_string(dir.path().join("piped.html")).unwrap(), page);
}

#[test]
fn a_record_of_another_format_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let newer = gleaner_testing::host::RECORD.replacen("\"format\": 1", "\"format\": 2", 1);
    fs::write(dir.path().join("HOST.json"), &newer).unwrap();
    for (args, name) in
        [(["report", "HOST.json"], "HOST.json"), (["host-page", "HOST.html"], "standard input")]
    {
        let output = run_in(dir.path(), &args, &newer);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(&format!("{name} has record format 2")), "{}", said(&output));
    }
    assert!(!dir.path().join("HOST.html").exists());
}
