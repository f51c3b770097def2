//! SPECIFICATION.md is what the promises and their latest outcomes say, and no promise stays missed.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs;
use std::path::Path;

use gleaner_bench::promises::{Outcomes, Promises};

/// A file of the source tree.
fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap()
}

fn outcomes() -> Outcomes {
    serde_json::from_str(&read("docs/promises.json")).unwrap()
}

#[test]
fn the_page_is_written_from_the_promises_and_their_outcomes() {
    let promises = Promises::parse(&read("lab/bench/promises.toml")).unwrap();
    let outcomes = outcomes();
    let known: Vec<String> = outcomes.keys().cloned().collect();
    promises.checks(&known).unwrap();
    assert!(promises.page(&outcomes) == read("SPECIFICATION.md"), "run `make promises PROMISES=--page`");
}

#[test]
fn a_promise_that_is_missed_twice_in_a_row_does_not_stay_as_it_is() {
    let outcomes = outcomes();
    let missed = outcomes.iter().filter(|(_, outcome)| outcome.misses >= 2);
    let missed: Vec<&str> = missed.map(|(name, _)| name.as_str()).collect();
    assert!(
        missed.is_empty(),
        "missed twice in a row or more, by docs/promises.json: {}; repair what is promised, or lower the limit in \
         lab/bench/promises.toml and give the reason in `says`; then `make promises PROMISES='--only NAME'`",
        missed.join(", ")
    );
}
