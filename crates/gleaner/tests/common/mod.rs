//! Shared by the product's tests: the machine, which one test at a time may change, and processes that never outlive
//! their test.

#![allow(clippy::print_stderr, reason = "a test says what it skips and measures")]
#![allow(dead_code, reason = "every test binary uses its own part of this")]

use std::io::Write as _;

pub(crate) mod journal;
pub(crate) mod levers;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod terminal;
pub(crate) mod threads;

/// Reports why a test cannot run here. On a CI machine, where it must run, that is a failure.
pub(crate) fn skipped(reason: &str) {
    // Not by a macro: the harness would hide what those print.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must run this test: {reason}");
}
