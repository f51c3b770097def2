//! A line for the user on standard error.

use std::io::Write as _;

/// Prints `text`. Errors are ignored: a closed standard error or a full disk must not end a run.
pub(crate) fn say(text: &str) {
    let line = format!("gleaner: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
