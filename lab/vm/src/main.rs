//! `gleaner-lab`: builds the lab's images, opens a shell in a machine, runs commands and proves claims.

mod cli;

use std::process::ExitCode;

/// Prefix of messages.
const NAME: &str = "gleaner-lab";

fn main() -> ExitCode {
    cli::run(gleaner_print::parse(NAME)).unwrap_or_else(|error| gleaner_print::failure(NAME, error.as_ref()))
}
