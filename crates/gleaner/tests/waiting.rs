//! Each observation in the journal says how long the workload's threads waited after wake-ups. Uses this machine's real
//! levers; needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::time::Duration;

use common::levers::Machine;
use common::process::{GLEANER, gleaner, text};
use gleaner_policy::{Waiting, WaitingSource};
use gleaner_proto::journal::{self, Record};

/// From the journal of a ping-pong: the waiting in each observation, and the notes.
fn waitings(options: &[&str]) -> Option<(Vec<Option<Waiting>>, Vec<String>)> {
    let machine = Machine::take()?;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let mut args = vec!["run", "--quiet", "--journal", file.to_str().unwrap()];
    args.extend(options);
    args.push("--");
    // For several observations, however fast they are: beside other work both threads can share a vCPU.
    args.extend([GLEANER, "workload", "--for", "2s", "request-response"]);
    let output = gleaner(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    machine.assert_untouched();
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for record in journal::read(&file).unwrap() {
        match record {
            Record::Observation { observation, .. } => found.push(observation.workload.waiting),
            Record::Note { text, .. } => notes.push(text),
            _ => {}
        }
    }
    assert!(!found.is_empty(), "{notes:?}");
    Some((found, notes))
}

/// Number of wake-ups from this source, and their mean latency.
fn of(source: WaitingSource, found: &[Option<Waiting>]) -> (u64, Duration) {
    let these = || found.iter().flatten().filter(|waiting| waiting.source == source);
    let (wake_ups, total) = (these().map(|w| w.wake_ups).sum(), these().map(|w| w.total).sum());
    (wake_ups, Waiting { wake_ups, total, tail: Duration::ZERO, source }.mean())
}

#[test]
fn each_observation_says_how_long_threads_waited() {
    let Some((found, notes)) = waitings(&["--fixed", "halt", "--trace-waiting"]) else { return };
    assert!(found.iter().all(Option::is_some), "{found:?}");
    let (wake_ups, mean) = of(WaitingSource::Traced, &found);
    if notes.iter().any(|note| note.contains("wake-up latencies")) {
        // Without BPF the journal has the reason, and each observation an estimate.
        assert_eq!(wake_ups, 0, "{notes:?}");
        return;
    }
    // How often a thread has to be woken depends on the machine; no wake-up takes less than that.
    assert!(wake_ups > 0 && mean > Duration::from_nanos(300), "{wake_ups} of {mean:?}");
}

#[test]
fn without_bpf_waiting_is_estimated_and_nothing_is_said() {
    let Some((found, notes)) = waitings(&["--fixed", "halt", "--no-bpf"]) else { return };
    assert!(found.iter().all(Option::is_some), "{found:?}");
    assert_eq!(of(WaitingSource::Traced, &found).0, 0);
    let (wake_ups, mean) = of(WaitingSource::Estimated, &found);
    assert!(wake_ups > 0 && mean > Duration::from_nanos(300), "{wake_ups} of {mean:?}");
    assert!(notes.is_empty(), "{notes:?}");
}
