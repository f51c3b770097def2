//! What the tests of every crate share: what the machine has, and what is said where it lacks that.
//!
//! A test that cannot run returns after [`skipped`]; `scripts/run-tests` counts these lines in its summary.

use std::fmt::Display;
use std::io::Write as _;

/// Says that a test, or a part of one, cannot run on this machine.
///
/// # Panics
///
/// Where `CI=true`: everything must run there.
#[track_caller]
pub fn skipped(reason: impl Display) {
    say("SKIPPED", &reason);
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must run this test: {reason}");
}

/// Says that a test, or a part of one, is left out, on a CI machine too: it must be asked for, or the kernel has nothing
/// to test.
pub fn left_out(reason: impl Display) {
    say("LEFT OUT", &reason);
}

/// Whether root runs the test. If not, the test is [`skipped`].
#[track_caller]
pub fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skipped("needs root");
    }
    root
}

/// Whether the test may use two vCPUs. If not, it is [`skipped`].
#[track_caller]
pub fn has_two_vcpus() -> bool {
    let several = std::thread::available_parallelism().is_ok_and(|vcpus| vcpus.get() >= 2);
    if !several {
        skipped("needs two vCPUs");
    }
    several
}

fn say(what: &str, reason: &dyn Display) {
    // Not by a macro: the harness hides what those print. It has started a line with the name of the test.
    let _ = writeln!(std::io::stderr(), "\n{what}: {reason}");
}
