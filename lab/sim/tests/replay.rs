//! `gleaner-sim replay` on the journal of a simulated run. `crates/gleaner/tests/journal.rs` replays real runs.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use gleaner_policy::Event;
use gleaner_proto::journal::{self, Record};

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gleaner-sim")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn journal(path: &Path) -> Vec<Record> {
    journal::read(path).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Writes the journal of a run in which trials start and end, the same each time.
fn simulated(file: &Path) {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/quick.toml");
    let output = sim(&["run", scenario, "--journal", path(file)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn replay(file: &Path, options: &[&str]) -> Output {
    sim(&[&["replay", path(file)], options].concat())
}

#[test]
fn another_policy_or_another_number_shows_where_the_decisions_part() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    simulated(&file);
    assert!(replay(&file, &[]).status.success());
    let output = replay(&file, &["--policy", "wake-cost=1us", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let again: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = journal(&file).iter().position(|r| matches!(r, Record::Decision { .. })).unwrap();
    // If wake-ups cost nothing, nothing is tried: the first difference is at the observation before the first decision.
    assert_eq!(again["difference"]["line"], first, "{again}");
    assert_eq!((&again["same"], &again["changed"]), (&0.into(), &true.into()));

    // The altered evidence of a verdict does not follow from the observations.
    let altered = dir.path().join("altered");
    let lines = fs::read_to_string(&file).unwrap();
    let verdict = journal(&file)
        .iter()
        .position(|r| matches!(r, Record::Decision { event: Event::TrialEnded { .. }, .. }))
        .unwrap();
    let alter = |(index, line): (usize, &str)| match index {
        _ if index == verdict => line.replace("\"pairs\":", "\"pairs\":9") + "\n",
        _ => line.to_owned() + "\n",
    };
    fs::write(&altered, lines.lines().enumerate().map(alter).collect::<String>()).unwrap();
    let output = replay(&altered, &[]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("the journal has") && printed.contains("this version of Gleaner now decides"),
        "{printed}"
    );
}

#[test]
fn a_journal_without_all_observations_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let (file, thinned) = (dir.path().join("journal"), dir.path().join("thinned"));
    simulated(&file);
    // Like a journal that was not asked for.
    let thin = |record: Record| match record {
        Record::Observation { in_force, observation, .. } => {
            Record::Observation { in_force, observation, skipped: 3, last: false }
        }
        other => other,
    };
    let lines = journal(&file).into_iter().map(|r| serde_json::to_string(&thin(r)).unwrap() + "\n");
    fs::write(&thinned, lines.collect::<String>()).unwrap();
    let output = replay(&thinned, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("gleaner run --journal FILE"), "{}", text(&output.stderr));
}
