//! `gleaner config`: `gleanerd` takes over, which alone can read its configuration, so that this program stays small.

use gleaner_print::{SiblingError, become_sibling};

const DAEMON: &str = "gleanerd";

/// Becomes the daemon's program, with the arguments of this one. Returns only where that fails.
pub(crate) fn run() -> SiblingError {
    become_sibling(DAEMON, std::env::args_os().skip(1))
}
