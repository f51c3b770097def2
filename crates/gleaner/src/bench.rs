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

// Their help is that of their arguments: a comment here would take its place.
#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(run::Args),
    List(list::Args),
    Compare(compare::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Run(args) => run::run(&args),
        Command::List(args) => list::run(&args),
        Command::Compare(args) => compare::run(&args),
    }
}
