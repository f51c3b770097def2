//! SPECIFICATION.md is what the promises and their latest outcomes say.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs;
use std::path::Path;

use gleaner_bench::promises::{Outcomes, Promises};

#[test]
fn the_page_is_written_from_the_promises_and_their_outcomes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let promises = Promises::parse(&read("lab/bench/promises.toml")).unwrap();
    let outcomes: Outcomes = serde_json::from_str(&read("docs/promises.json")).unwrap();
    let known: Vec<String> = outcomes.keys().cloned().collect();
    promises.checks(&known).unwrap();
    assert!(promises.page(&outcomes) == read("SPECIFICATION.md"), "run `make promises PROMISES=--page`");
}
