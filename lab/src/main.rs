//! `gleaner-lab`: makes the lab's images, gives a shell in a machine, runs steps in one.

mod cli;

use std::process::ExitCode;

/// Before each message.
const NAME: &str = "gleaner-lab";

fn main() -> ExitCode {
    cli::run(gleaner_print::parse(NAME)).unwrap_or_else(|error| gleaner_print::failure(NAME, error.as_ref()))
}
