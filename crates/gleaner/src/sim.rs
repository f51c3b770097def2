//! `gleaner sim`: simulated machines, the papers' numbers on them, and this machine beside its simulation.

mod list;
mod reproduce;
mod run;
mod validate;

use std::process::ExitCode;

/// Simulate machines that nobody here has: hosts, VMs, programs and policies
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run a scenario file
    Run(run::Args),
    /// Name the programs of the library and where their parameters are from
    List,
    /// Compare the papers' numbers with simulated ones
    Reproduce(reproduce::Args),
    /// Compare this machine with its simulation: five programs under four settings
    Validate(validate::Args),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::List => {
            list::run();
            Ok(ExitCode::SUCCESS)
        }
        Command::Reproduce(args) => reproduce::run(args),
        Command::Validate(args) => validate::run(args),
    }
}
