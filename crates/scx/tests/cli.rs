//! The program alone: what it prints where it cannot schedule, and its exit status.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::Path;
use std::process::{Command, Output};

fn scx_gleaner(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_scx_gleaner")).args(args).output().unwrap()
}

#[test]
fn where_there_is_no_sched_ext_that_is_said_with_the_remedy() {
    if Path::new("/sys/kernel/sched_ext").exists() {
        return gleaner_testing::left_out("this kernel has sched_ext");
    }
    let output = scx_gleaner(&["--rules", "off"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("scx_gleaner: this kernel has no sched_ext"), "{said}");
    assert!(said.contains("CONFIG_SCHED_CLASS_EXT=y"), "{said}");
}

#[test]
fn without_a_scheduler_there_is_nothing_to_monitor() {
    if Path::new(gleaner_scx_control::SOCKET).exists() {
        return gleaner_testing::left_out("an scx_gleaner runs here");
    }
    let output = scx_gleaner(&["--monitor", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("gleaner-host sched start"), "{said}");
}

#[test]
fn each_count_is_explained() {
    let output = scx_gleaner(&["--help-stats"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    let line = said.lines().find(|line| line.starts_with("stolen ")).unwrap();
    assert!(
        line.contains("tasks") && line.ends_with("Tasks that an idle pCPU took from another one"),
        "{line}"
    );
    assert!(said.lines().all(|line| line.split_whitespace().count() > 4), "{said}");
}

#[test]
fn rules_that_do_not_exist_are_usage_errors() {
    let output = scx_gleaner(&["--rules", "all"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("`all` is no rule: use off, or resched-dp"), "{said}");
}

#[test]
fn man_pages_and_completions_have_its_options() {
    for (args, has) in [
        (&["man"][..], r"\-\-urgent\-slice"),
        (&["completions", "bash"], "--urgent-slice"),
        (&["reference"], "Usage: scx_gleaner [OPTIONS]"),
    ] {
        let output = scx_gleaner(args);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(has), "{args:?}: {text}");
    }
}
