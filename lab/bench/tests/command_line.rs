//! `gleaner-bench` as a program.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt as _;
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
    assert!(!std::path::Path::new(file).exists());
}
