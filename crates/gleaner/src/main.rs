//! `gleaner`: wake-up speed of bare metal for a program in a virtual machine. Thin subcommands over the libraries.

mod attach;
mod choice;
mod cli;
mod control;
mod fixed;
mod run;
mod summary;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => return run::run(&args),
        Command::Attach(args) => attach::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("gleaner: {error:#}");
        ExitCode::FAILURE
    })
}
