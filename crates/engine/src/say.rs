//! A line for the user on standard error.

use std::io::Write as _;

/// Says `text`. A user who closed standard error, or whose disk is full, does without it: nothing may fail for that.
pub(crate) fn say(text: &str) {
    let line = format!("gleaner: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
