//! What the tests of every crate share: what the machine has, and what is said where it lacks that.
//!
//! A test that cannot run returns after [`skipped`]; `scripts/run-tests` counts these lines in its summary.

pub mod group;
pub mod host;
pub mod levers;
pub mod placement;
pub mod process;
pub mod prometheus;
pub mod server;
pub mod systemd;
pub mod tree;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write as _;

use serde_json::Value;

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

/// Says that a test cannot run for want of a lever. Without a cpuidle driver the kernel has no idle loop that could poll:
/// then it is [`left_out`], else [`skipped`].
#[track_caller]
pub fn without_lever(reason: impl Display) {
    let driver =
        std::fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver").unwrap_or_default();
    if matches!(driver.trim(), "" | "none") {
        left_out(reason);
    } else {
        skipped(reason);
    }
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

/// The format of a JSON document without its values: a line for each place and the types that stand there, such as
/// `rows[].name: string`. A place that is only ever null has no line.
pub fn shape(document: &Value) -> String {
    let mut lines = BTreeSet::new();
    collect("", document, &mut lines);
    lines.into_iter().collect()
}

fn collect(place: &str, value: &Value, lines: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Null => return,
        Value::Array(items) => {
            return items.iter().for_each(|item| collect(&format!("{place}[]"), item, lines));
        }
        Value::Object(fields) => {
            let dot = if place.is_empty() { "" } else { "." };
            return fields
                .iter()
                .for_each(|(name, value)| collect(&format!("{place}{dot}{name}"), value, lines));
        }
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
    };
    lines.insert(format!("{place}: {kind}\n"));
}

fn say(what: &str, reason: &dyn Display) {
    // Not by a macro: the harness hides what those print. It has started a line with the name of the test.
    let _ = writeln!(std::io::stderr(), "\n{what}: {reason}");
}
