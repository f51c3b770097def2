//! `gleaner bench`: commands and workloads in any modes, interleaved, with a result file that can be judged later.

mod ad_hoc;
mod compare;
mod list;
mod run;

use std::process::ExitCode;

/// Measure commands in several modes, interleaved, as the papers do
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Measure a scenario, a built-in workload or a command
    Run(run::Args),
    /// List workloads, modes, scenarios, real programs, and what is missing on this machine
    List(list::Args),
    /// Compare two result files
    Compare(compare::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Run(args) => run::run(&args),
        Command::List(args) => list::run(&args),
        Command::Compare(args) => compare::run(&args),
    }
}
