//! `gleaner record` and `gleaner replay` on the built-in workloads. Recording needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use gleaner_policy::{CpuId, CpuSet, PolicyConfig};
use gleaner_proto::trace_file::{Event, EventKind, Header, PrevState, Task, Writer};
use serde_json::Value;
use tempfile::TempDir;

use common::levers::Machine;
use common::process::{GLEANER, gleaner, text};

/// The recording of a built-in workload, in its own directory. Nothing else is recorded until it is dropped: replaying
/// takes CPU time.
struct Recorded {
    _machine: Machine,
    dir: TempDir,
    /// What the workload printed about itself.
    outcome: Value,
}

impl Recorded {
    /// `None`, with a message, if nothing can be recorded here.
    fn new(workload: &[&str]) -> Option<Self> {
        let machine = Machine::take()?;
        let dir = tempfile::tempdir().unwrap();
        let trace = path(&dir);
        let mut args = vec!["record", "-o", trace.to_str().unwrap(), "--", GLEANER, "workload", "--json"];
        args.extend(workload);
        let output = gleaner(&args);
        machine.assert_untouched();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).starts_with("recorded "), "{}", text(&output.stdout));
        // The command's output goes to stderr.
        let outcome = serde_json::from_slice(&output.stderr).unwrap();
        Some(Self { _machine: machine, dir, outcome })
    }

    fn operations(&self) -> f64 {
        self.outcome["operations"].as_f64().unwrap()
    }

    fn replay(&self, args: &[&str]) -> Value {
        let output = replay(&path(&self.dir), &[&["--json"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn path(dir: &TempDir) -> PathBuf {
    dir.path().join("trace")
}

fn replay(trace: &Path, args: &[&str]) -> Output {
    gleaner(&[&["replay", trace.to_str().unwrap()], args].concat())
}

/// The busiest threads first, by number in the pattern.
fn busy(replayed: &Value) -> Vec<usize> {
    let threads = replayed["pattern"]["threads"].as_array().unwrap();
    let switches = |i: &usize| threads[*i]["switches"].as_u64().unwrap();
    let mut busy: Vec<usize> = (0..threads.len()).filter(|i| switches(i) > 100).collect();
    busy.sort_by_key(|i| std::cmp::Reverse(switches(i)));
    busy
}

fn would_try_retention(replayed: &Value) -> bool {
    let decisions = replayed["decisions"].as_array().unwrap().iter();
    let mut retained = decisions.map(|d| &d["event"]).filter(|event| event["event"] == "would-try");
    retained.any(|event| event["candidate"]["retention"]["method"] == "haltpoll")
}

fn story(replayed: &Value) -> String {
    replayed["story"].to_string()
}

const TERMS: [&str; 4] = ["--policy", "method=haltpoll", "--policy", "wake-cost=30us"];

/// Writes a made-up trace: for one second two threads on different vCPUs wake each other, which takes 20 us, and answer
/// within 5 us.
fn ping_pong(file: &Path) {
    const TURN: u64 = 25_000;
    let header = Header {
        unix_ms: 0,
        workload: "ping-pong".to_owned(),
        vcpus: CpuSet::first(2),
        config: Box::new(PolicyConfig::default()),
        limits: Vec::new(),
    };
    let mut writer = Writer::new(fs::File::create(file).unwrap(), &header, u64::MAX).unwrap();
    let mut event = |at_ns, what| writer.event(&Event { at_ns, what }).unwrap();
    for tid in [10, 11] {
        event(0, EventKind::Thread { tid, process: 10, name: format!("thread-{tid}") });
    }
    let prev_state = PrevState::Blocked;
    for turn in 0..1_000_000_000 / TURN {
        let (at, runs) = (turn * TURN, u32::from(turn % 2 == 1));
        let (cpu, own, next) = (CpuId(runs), Task::Thread(runs), Task::Thread(1 - runs));
        event(at, EventKind::Switch { cpu, from: Task::Nobody, prev_state: PrevState::Runnable, to: own });
        event(at + 4000, EventKind::Wake { cpu, waker: own, wakee: next });
        event(at + 5000, EventKind::Switch { cpu, from: own, prev_state, to: Task::Nobody });
    }
    writer.finish(1_000_000_000).unwrap();
}

#[test]
fn what_lives_on_wake_ups_would_be_retained_where_they_are_expensive() {
    let dir = tempfile::tempdir().unwrap();
    ping_pong(&path(&dir));
    let replayed = |args: &[&str]| -> Value {
        let output = replay(&path(&dir), &[&["--json"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let costly = replayed(&TERMS);
    assert!(would_try_retention(&costly), "{}", story(&costly));
    assert_eq!(busy(&costly).len(), 2);
    // The same trace under another policy.
    assert!(!would_try_retention(&replayed(&["--policy", "method=halt"])));
    let cheap = ["--policy", "method=haltpoll", "--policy", "wake-cost=1ns"];
    assert!(!would_try_retention(&replayed(&cheap)));
}

#[test]
fn requests_and_replies_are_recorded_one_by_one() {
    let Some(recorded) = Recorded::new(&["request-response", "--operations", "10000"]) else { return };
    let replayed = recorded.replay(&TERMS);
    assert_eq!(replayed["lost"], 0);
    let (threads, busy) = (&replayed["pattern"]["threads"], busy(&replayed));
    let [a, b] = busy[..] else { panic!("two threads hand off to each other: {threads}") };
    // One hand-off each way per operation, and no wait if the thread is still awake. The bound is generous: excess waits
    // occur, for unknown reasons.
    let operations = recorded.operations();
    let edges = replayed["pattern"]["edges"].as_array().unwrap();
    for (by, whom) in [(a, b), (b, a)] {
        let waits = threads[whom]["waits"].as_f64().unwrap();
        assert!(waits > 0.0 && waits <= 2.0 * operations, "{waits} waits, {operations} operations");
        let edge = edges.iter().find(|e| e["waker"] == by && e["wakee"] == whom);
        let count = edge.map_or(0.0, |e| e["count"].as_f64().unwrap());
        assert!((0.9..=1.1).contains(&(count / waits)), "{count} wake-ups, {waits} waits");
    }
}

#[test]
fn computation_is_recorded_and_nothing_would_be_tried() {
    let Some(recorded) = Recorded::new(&["compute", "--threads", "1", "--seconds", "1"]) else { return };
    let replayed = recorded.replay(&TERMS);
    let elapsed = &replayed["elapsed"];
    let seconds = |time: &Value| time["secs"].as_f64().unwrap() + time["nanos"].as_f64().unwrap() / 1e9;
    let threads = replayed["pattern"]["threads"].as_array().unwrap();
    let computed: f64 = threads.iter().map(|thread| seconds(&thread["cpu_time"])).sum();
    assert!(computed > 0.5 && computed < 1.1 * seconds(elapsed), "{computed} s of {elapsed}");
    assert_eq!(replayed["decisions"].as_array().unwrap().len(), 0, "{}", story(&replayed));
    let shown = text(&replay(&path(&recorded.dir), &TERMS).stdout);
    assert!(shown.contains("nothing would have been tried"), "{shown}");
    assert!(
        shown.contains("a dry run that changes nothing") && shown.contains("not available: whether"),
        "{shown}"
    );
}

#[test]
fn a_damaged_trace_is_replayed_up_to_the_damage() {
    let Some(recorded) = Recorded::new(&["request-response", "--seconds", "0.3"]) else { return };
    let trace = path(&recorded.dir);
    let mut bytes = fs::read(&trace).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&trace, &bytes).unwrap();
    let output = replay(&trace, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("at byte ") && errors.contains("corrupt"), "{errors}");
    let replayed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(busy(&replayed).len(), 2);
    fs::write(&trace, &bytes[..20]).unwrap();
    let output = replay(&trace, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("truncated"), "{}", text(&output.stderr));
}

#[test]
fn a_command_that_fails_passes_its_status_on() {
    let Some(_machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let trace = path(&dir);
    let output = gleaner(&["record", "-o", trace.to_str().unwrap(), "--", "sh", "-c", "exit 9"]);
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    let shown = text(&replay(&trace, &[]).stdout);
    assert!(shown.contains("`sh -c exit 9`"), "{shown}");
}

#[test]
fn what_cannot_be_recorded_or_replayed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("other");
    fs::write(&other, "{}\n").unwrap();
    let output = replay(&other, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("this is not a trace"), "{}", text(&output.stderr));
    let output = replay(&dir.path().join("missing"), &[]);
    assert!(text(&output.stderr).contains("missing"), "{}", text(&output.stderr));
    assert_eq!(replay(&other, &["--policy", "speed=9"]).status.code(), Some(2));
    assert_eq!(gleaner(&["record"]).status.code(), Some(2));
    let Some(_machine) = Machine::take() else { return };
    let trace = path(&dir);
    for target in [["--pid", "4000000"], ["--cgroup", "/nowhere"]] {
        let output = gleaner(&[&["record", "-o", trace.to_str().unwrap()], &target[..]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(target[1]), "{}", text(&output.stderr));
        assert!(!trace.exists(), "nothing is written where nothing is recorded");
    }
}
