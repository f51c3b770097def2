//! `gleaner demo`, through the binary: it really starts `gleaner run`.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::process::Command;

#[test]
fn demo_compares_a_workload_with_and_without() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: this test must run as root");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "CI must run this test as root");
        return;
    }
    let args = ["demo", "--rounds", "2", "--seconds", "0.3", "--only", "request-response", "--json"];
    // Another gleaner may be at work on this machine; only one can be at a time.
    let output = (0..20)
        .map(|_| Command::new(env!("CARGO_BIN_EXE_gleaner")).args(args).output().unwrap())
        .find(|output| !String::from_utf8_lossy(&output.stderr).contains("another gleaner"))
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &report["rows"][0];
    assert_eq!(row["workload"], "request-response");
    for way in ["plain", "gleaner"] {
        let samples = row[way].as_array().unwrap();
        assert_eq!(samples.len(), 2);
        assert!(samples.iter().all(|s| s["ops_per_s"].as_f64().unwrap() > 0.0), "{row}");
    }
    assert!(row["ratio"]["median"].as_f64().unwrap() > 0.0, "{row}");
    assert!(row["kept"].as_str().unwrap().contains("% of the time"), "{row}");
}

#[test]
fn wrong_usage_is_told() {
    for args in [["demo", "--rounds", "0"], ["demo", "--only", "nothing"], ["demo", "--seconds", "0"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_gleaner")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}
