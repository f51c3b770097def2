//! `gleaner-lab`: makes the lab's images, gives a shell in a machine, runs steps in one.

mod cli;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    cli::run(cli::Cli::parse()).unwrap_or_else(|error| {
        eprintln!("gleaner-lab: {error:#}");
        ExitCode::FAILURE
    })
}
