//! The suite `vm`: the claims of the five minutes in `make test`, one at a time. `make lab` proves all of them.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

use gleaner_lab::{Error, Lab, claims, table};
use gleaner_testing::skipped;

/// Machines share the CPUs.
static TURN: Mutex<()> = Mutex::new(());

/// Proves the quick claim with this name, or reports why it cannot be proven here.
fn prove(name: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = Lab::open().unwrap();
    match lab.prepare() {
        Err(error @ (Error::NoTool { .. } | Error::NoPackages { .. } | Error::NoMirror)) => {
            return skipped(error);
        }
        prepared => prepared.unwrap(),
    }
    let chosen = claims::only(&[name.to_owned()], true).unwrap();
    assert!(!chosen.is_empty(), "`{name}` is no quick claim");
    let outcomes = claims::run(&lab, &chosen, NonZero::<usize>::MIN);
    assert!(outcomes.iter().all(claims::Outcome::holds), "\n{}", table::text(&outcomes));
}

#[test]
#[ignore = "boots machines, needs images: make test-lab"]
fn faults() {
    prove("faults");
}

#[test]
#[ignore = "boots machines, needs images: make test-lab"]
fn doctor() {
    prove("doctor");
}

#[test]
#[ignore = "boots machines, needs images: make test-lab"]
fn bpf() {
    prove("bpf");
}

#[test]
fn every_quick_claim_is_a_test() {
    let named: Vec<&str> = claims::only(&[], true).unwrap().iter().map(|claim| claim.name).collect();
    assert_eq!(named, ["faults", "doctor", "bpf"]);
}
