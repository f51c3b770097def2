//! `gleaner-host sched` where nothing schedules, and with programs in the place of `scx_gleaner`.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gleaner_scx_control::{DIRECTORY, SOCKET};
use serde_json::Value;

/// One test at a time: a process that is started while another thread writes a program has it open for writing, too, until it is
/// executed itself, and the kernel starts no such program.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(program: &Path, args: &[&str]) -> Output {
    Command::new(program).arg("sched").args(args).env("PATH", "/nowhere").output().unwrap()
}

fn gleaner_host(args: &[&str]) -> Output {
    run(Path::new(env!("CARGO_BIN_EXE_gleaner-host")), args)
}

fn is_free() -> bool {
    let free = !Path::new(SOCKET).exists() && !Path::new("/sys/kernel/sched_ext/root").exists();
    if !free {
        gleaner_testing::left_out("a sched_ext scheduler runs here");
    }
    free
}

#[test]
fn where_none_runs_that_is_said() {
    let _alone = alone();
    if !is_free() {
        return;
    }
    let output = gleaner_host(&["status"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.starts_with("the kernel's own scheduler"), "{said}");
    let output = gleaner_host(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&status["pid"], &status["scheduler"]), (&Value::Null, &Value::Null));
    assert_eq!(status["kernel"]["ops"], Value::Null);
    let output = gleaner_host(&["stop"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.starts_with("no scx_gleaner runs"), "{said}");
    let output = gleaner_host(&["set", "--rules", "off"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no scx_gleaner answers") && said.contains("gleaner-host sched start"), "{said}");
}

#[test]
fn one_that_cannot_be_started_says_why() {
    let _alone = alone();
    if !is_free() {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        let output = gleaner_host(&["start"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("run it as root"), "{said}");
        return gleaner_testing::skipped("only root starts a scheduler");
    }
    // In a directory of its own it has no other program beside it.
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("gleaner-host");
    fs::copy(env!("CARGO_BIN_EXE_gleaner-host"), &alone).unwrap();
    let output = run(&alone, &["start"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("scx_gleaner is not installed"), "{said}");
    let fake = dir.path().join("scx_gleaner");
    for (script, status, says) in [
        ("echo \"refused: $*\" >&2; exit 1", 1, "refused: --rules off\n"),
        ("echo wrong usage >&2; exit 2", 2, "wrong usage\n"),
        ("kill -KILL $$", 1, "signal: 9"),
    ] {
        fs::write(&fake, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&fake, Permissions::from_mode(0o755)).unwrap();
        let output = run(&alone, &["start", "--rules", "off"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(says) && said.contains("does not schedule this host"), "{said}");
    }
    let log = Path::new(DIRECTORY).join("scx.log");
    assert!(log.exists(), "what it said is kept");
    fs::remove_file(log).unwrap();
}
