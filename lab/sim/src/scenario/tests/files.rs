//! What scenario files can express, and the errors for invalid ones.

use gleaner_engine::Journal;

use crate::End;
use crate::scenario::Scenario;

const GOOD: &str = r#"
title = "a pair"
time = "100ms"

[host]
cores = 2
placement = "load-conscious"
urgent = { resched_dp = true, tlb_co = true }

[[vm]]
name = "a"
vcpus = 2
costs = "this-vm"
policy = "haltpoll:200us"
[[vm.program]]
name = "ping-pong"

[[vm]]
name = "b"
vcpus = 1
costs = "atc14-vm"
[[vm.program]]
name = "matmul"
work = "10ms"
"#;

fn error(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    Scenario::parse("x.toml", &GOOD.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn a_good_one_runs() {
    let scenario = Scenario::parse("x.toml", GOOD).unwrap();
    let outcome = scenario.run(Some(1000), &mut Journal::disabled()).unwrap();
    assert_eq!(outcome.end, End::TimeLimit);
    assert!(outcome.report.vms[0].tasks[0].totals.operations > 100);
    assert!(outcome.report.vms[1].tasks[0].totals.finished.is_some());
    let trace: serde_json::Value = serde_json::from_str(&outcome.world.export().unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|e| e["name"] == "polls" && e["ph"] == "X" && e["dur"].as_f64() > Some(0.0)));
    assert!(events.iter().any(|e| e["args"]["name"] == "vCPU 1"));
}

#[test]
fn mistakes_are_reported_with_file_line_and_nearest_name() {
    for (from, to, expected) in [
        ("cores = 2", "coers = 2", "x.toml:6: unknown field `coers`"),
        ("cores = 2", "coers = 2", "did you mean `cores`?"),
        (
            "\"ping-pong\"",
            "\"pingpong\"",
            "x.toml:16: there is no program `pingpong`; did you mean `ping-pong`?",
        ),
        (
            "\"this-vm\"",
            "\"this_vm\"",
            "x.toml:13: there is no cost table `this_vm`; did you mean `this-vm`?",
        ),
        ("\"100ms\"", "\"soon\"", "x.toml:3: `soon` is not a time"),
        ("\"haltpoll:200us\"", "\"poll\"", "x.toml:14: "),
        ("name = \"b\"", "name = \"a\"", "two VMs are called `a`"),
        ("vcpus = 1", "vcpus = 0", "VM `b` cannot be built: it has 0 vCPUs"),
        ("cores = 2", "cores = 0", "the host cannot be built: it has 0 pCPUs"),
        ("cores = 2", "cores = \"two\"", "x.toml:6: "),
    ] {
        let message = error(from, to);
        assert!(message.contains(expected), "{message}");
    }
}
