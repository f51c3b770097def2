//! Runs `gleaner-bench workload`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::{Command, Output};
use std::time::Duration;

use gleaner_bench::workload::Outcome;

fn workload(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gleaner-bench")).arg("workload").args(args).output().unwrap()
}

fn outcome(args: &[&str]) -> Outcome {
    let output = workload(&[args, &["--json"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {error}"))
}

#[test]
fn runs_for_a_time_or_a_number_of_operations() {
    assert!(outcome(&["convoy", "--for", "50ms"]).elapsed >= Duration::from_millis(50));
    assert!(outcome(&["convoy", "--seconds", "0.05"]).elapsed >= Duration::from_millis(50));
    assert_eq!(outcome(&["compute", "--operations", "7", "--threads", "2"]).operations, 7);
}

#[test]
fn parameters_have_one_spelling_and_a_short_form() {
    let barrier = ["barrier", "--operations", "10"];
    let long =
        ["--set", "kind=spin", "--set", "threads=2", "--set", "granularity=5us", "--set", "imbalance=0.5"];
    assert_eq!(outcome(&[&barrier[..], &long].concat()).operations, 10);
    assert_eq!(outcome(&[&barrier[..], &["--kind", "spin", "--threads", "2"]].concat()).operations, 10);
    let output = workload(&["pipeline", "--kind", "dedup", "--operations", "40"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("pipeline: 40 operations in "), "{text}");
}

#[test]
fn wrong_usage_ends_with_status_2_and_says_what_to_write() {
    for (args, hint) in [
        (&["barrier", "--set", "threads=1"][..], "threads = 1 is out of range; use 2 to 1024"),
        (&["barrier", "--kind", "dedup"], "workload barrier has no kind dedup; its kinds are block, spin"),
        (&["barrier", "--kind", "warp"], "spin-then-block"),
        (&["compute", "--set", "granularity=5us"], "workload compute has no parameter granularity"),
        (&["compute", "--set", "speed=5"], "`speed=5` sets no parameter"),
        (&["compute", "--set", "threads=two"], "parameter threads: `two`"),
        (&["compute", "--operations", "0"], "operations"),
        (&["compute", "--for", "2"], "`2` is not a time such as"),
        (&["compute", "--for", "1us"], "between 10ms and 3600s"),
        (&["compute", "--for", "1s", "--operations", "5"], "cannot be used with"),
        (&["ferret"], "user-spin-barrier"),
    ] {
        let output = workload(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(hint), "{args:?}: {error}");
    }
}
