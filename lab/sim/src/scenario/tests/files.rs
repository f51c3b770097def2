//! What scenario files can express, and the errors for invalid ones.

use gleaner_coordination::UrgentConfig;
use gleaner_engine::Journal;
use gleaner_policy::Method;

use crate::scenario::{Control, Scenario};
use crate::{End, PauseLoops, UrgentRules};

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
fn what_the_papers_machines_need_can_be_said() {
    let text = GOOD
        .replacen("cores = 2", "cores = 2\npause_loops = \"blind\"", 1)
        .replacen(
            "resched_dp = true, tlb_co",
            "resched_dp = \"300us\", slice = \"1ms\", allowance = \"6ms\", tlb_co",
            1,
        )
        .replacen("haltpoll:200us", "gleaner:yield", 1)
        .replacen("name = \"b\"", "name = \"b\"\ncount = 3", 1)
        .replacen("name = \"matmul\"", "name = \"volrend\"\nvariant = \"tpds21-blocking\"", 1);
    let scenario = Scenario::parse("x.toml", &text).unwrap();
    let host = scenario.spec.host;
    assert_eq!(host.pause_loops, PauseLoops::Blind);
    let urgent = UrgentConfig {
        resched_dp_ns: 300_000,
        slice_ns: 1_000_000,
        allowance_ns: 6_000_000,
        ..UrgentConfig::PAPER
    };
    assert_eq!(host.urgent, UrgentRules::from(urgent));
    let names: Vec<&str> = scenario.spec.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["a", "b1", "b2", "b3"]);
    assert_eq!(scenario.control[..2], [Control::Gleaner(Method::Yield), Control::HALT]);
    let barriers =
        |text: &str| Scenario::parse("x.toml", text).unwrap().spec.vms[1].tasks[0].program.objects.clone();
    let spinning = text.replacen("tpds21-blocking", "tpds21", 1);
    assert!(barriers(&text) != barriers(&spinning), "volrend's spinning barrier");
    assert_eq!(barriers(&text.replacen("tpds21-blocking", "library", 1)).len(), 1);

    let none = Scenario::parse("x.toml", &text.replacen("count = 3", "count = 0", 1)).unwrap();
    assert_eq!((none.spec.vms.len(), none.control.len()), (1, 1));
    for (from, to, expected) in [
        ("count = 3", "count = 2000", "2000 VMs are too many: 1024 are possible"),
        ("\"300us\"", "\"soon\"", "`soon` is not a time"),
        ("tpds21-blocking", "tpds22", "x.toml:"),
        ("gleaner:yield", "gleaner:nap", "x.toml:"),
    ] {
        let error = Scenario::parse("x.toml", &text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn rules_of_a_vm_replace_those_of_the_host_one_by_one() {
    let rules = |of_vm: &str| {
        let text = GOOD.replacen("name = \"b\"", &format!("name = \"b\"\nurgent = {of_vm}"), 1);
        let spec = Scenario::parse("x.toml", &text).unwrap().spec;
        assert_eq!(spec.vms[0].urgent, None, "the host's");
        spec.vms[1].urgent.unwrap()
    };
    let paper = UrgentRules::from(UrgentConfig::PAPER);
    assert_eq!(rules("{}"), paper);
    assert_eq!(
        rules("{ resched_dp = \"1000us\", early = true, resched_co = true, allowance = \"0ms\" }"),
        UrgentRules {
            on_send: UrgentConfig {
                resched_dp_ns: 1_000_000,
                resched_co_ns: 500_000,
                allowance_ns: 0,
                ..UrgentConfig::PAPER
            },
            early: true,
        }
    );
    assert_eq!(
        rules("{ resched_dp = \"0us\", tlb_co = false, slice = \"100us\" }").on_send,
        UrgentConfig { slice_ns: 100_000, ..UrgentConfig::OFF }
    );
}

#[test]
fn times_of_the_urgency_rules_are_bounded() {
    for (of_host, expected) in [
        ("slice = \"0us\"", "the host cannot be built: urgent.slice is 0 ns; slices last 1 us to 1 s"),
        ("resched_dp = \"2s\"", "urgent.resched_dp is 2000000000 ns"),
        ("allowance = \"1001ms\"", "urgent.allowance is 1001000000 ns"),
    ] {
        let message = error("resched_dp = true", of_host);
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let message = error("vcpus = 1", "vcpus = 1\nurgent = { slice = \"10ns\" }");
    assert!(message.contains("VM `b` cannot be built: urgent.slice is 10 ns"), "{message}");
    let message = error("resched_dp = true", "resched_pd = true");
    assert!(message.contains("x.toml:8"), "{message}");
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
