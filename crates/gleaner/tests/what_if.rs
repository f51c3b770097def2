//! `gleaner sim` on recordings of `gleaner record`, which need root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

use common::levers::Machine;
use common::process::{GLEANER, gleaner, text};

fn sim(args: &[&str]) -> Value {
    let output = gleaner(&[&["sim"], args].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(args: &[&str]) -> String {
    let output = gleaner(&[&["sim"], args].concat());
    assert!(!output.status.success(), "{args:?}");
    text(&output.stderr)
}

/// One test at a time: simulations take CPU time, which would disturb recordings.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recording of a built-in workload by `gleaner record`; `None`, with a message, if that is not possible here.
fn record(workload: &[&str]) -> Option<(TempDir, String)> {
    let machine = Machine::take()?;
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace").to_str().unwrap().to_owned();
    let mut args = vec!["record", "-o", &trace, "--", GLEANER, "workload"];
    args.extend(workload);
    let output = gleaner(&args);
    machine.assert_untouched();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some((dir, trace))
}

/// Run times under `policy`, by seed.
fn runs(answer: &Value, policy: &str) -> Vec<f64> {
    let rows = answer["policies"].as_array().unwrap();
    let row = rows.iter().find(|row| row["policy"] == policy).unwrap();
    row["runs"].as_array().unwrap().iter().map(|run| run["seconds"].as_f64().unwrap()).collect()
}

#[test]
fn a_recorded_program_is_predicted_under_other_policies_and_beside_neighbours() {
    let _turn = turn();
    let Some((_dir, trace)) = record(&["request-response", "--operations", "5000"]) else { return };
    let arguments = ["predict", "--trace", &trace, "--policy", "haltpoll:200us", "--seeds", "3", "--json"];
    let here = sim(&arguments);
    let recorded = here["recorded_s"].as_f64().unwrap();
    assert!(here["hand_offs"].as_u64().unwrap() > 1000, "{}", here["hand_offs"]);
    let halting = runs(&here, "halt");
    assert_eq!(halting.len(), 3);
    // The untouched system's simulated time is only of the same order as the recorded one: the real cost of a wake-up
    // varies with the hypervisor's other guests, that of the simulated machine does not.
    assert!(halting.iter().all(|s| (0.2..5.0).contains(&(s / recorded))), "{halting:?} {recorded}");
    assert!((halting[0] / halting[1] - 1.0).abs() > 1e-9, "seeds vary: {halting:?}");
    // On a machine whose wake-ups are expensive: here they may be cheap.
    let expensive = sim(&[&arguments[..], &["--costs", "this-vm"]].concat());
    let (halting, polling) = (runs(&expensive, "halt"), runs(&expensive, "haltpoll:200us"));
    for (halt, poll) in halting.iter().zip(&polling) {
        assert!(halt / poll > 1.2, "a request-response gains by polling: {halting:?} {polling:?}");
    }
    let elsewhere = ["--vcpus", "8", "--pcpus", "8", "--neighbours", "2:matmul", "--seeds", "2", "--json"];
    let with_neighbours = sim(&[&["predict", "--trace", &trace], &elsewhere[..]].concat());
    assert_eq!(
        (with_neighbours["vcpus"].as_u64(), with_neighbours["neighbours"][0]["count"].as_u64()),
        (Some(8), Some(2))
    );
    let steal = |row: &Value| row["runs"][0]["steal"].as_f64().unwrap();
    for row in with_neighbours["policies"].as_array().unwrap() {
        assert!(row["runs"][0]["neighbours_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!((0.0..1.0).contains(&steal(row)), "{row}");
    }
    assert!(runs(&with_neighbours, "gleaner").iter().all(|s| *s > 0.0));
    // The same seeds give the same result.
    assert_eq!(with_neighbours, sim(&[&["predict", "--trace", &trace], &elsewhere[..]].concat()));

    let bytes = fs::read(&trace).unwrap();
    fs::write(&trace, &bytes[..bytes.len() / 2]).unwrap();
    let message = refused(&["predict", "--trace", &trace]);
    assert!(message.contains("at byte") && message.contains("truncated"), "{message}");
    let mut other = bytes;
    other[8] = 99;
    fs::write(&trace, other).unwrap();
    assert!(refused(&["predict", "--trace", &trace]).contains("this trace has version 99"));
}

#[test]
fn a_recording_runs_as_a_program_of_a_scenario() {
    let _turn = turn();
    let Some((dir, _trace)) = record(&["barrier", "--operations", "2000"]) else { return };
    let file = dir.path().join("s.toml");
    let scenario = "title = 't'\ntime = '20s'\n[[vm]]\nname = 'a'\nvcpus = 2\ncosts = 'this-vm'\n[[vm.program]]\n\
                    name = 'traced'\ntrace = 'trace'\n";
    fs::write(&file, scenario).unwrap();
    let report = sim(&["run", file.to_str().unwrap(), "--json"]);
    assert_eq!(report["end"], "finished");
    assert_eq!(report["vms"][0]["tasks"][0]["name"], "traced");
    assert!(report["vms"][0]["tasks"][0]["operations"].as_u64().unwrap() > 100);
    fs::write(&file, scenario.replace("'trace'", "'s.toml'")).unwrap();
    let message = refused(&["run", file.to_str().unwrap()]);
    assert!(message.contains("s.toml:9: ") && message.contains("this is not a trace"), "{message}");
}
