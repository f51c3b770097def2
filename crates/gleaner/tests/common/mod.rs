//! What the tests of the product share: the machine, which only one test may use at a time, and processes that never
//! outlive their test.

#![allow(clippy::print_stderr, reason = "a test says what it skips and measures")]
#![allow(dead_code, reason = "every test binary uses its own part of this")]

pub(crate) mod journal;
pub(crate) mod levers;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod terminal;
pub(crate) mod threads;

/// Says loudly why a test cannot run here; on a CI machine, where it must, that is a failure.
pub(crate) fn skipped(reason: &str) {
    eprintln!("SKIPPED: {reason}");
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must run this test: {reason}");
}
