//! `gleaner-bench`: measures commands, workloads and real servers in several modes, interleaved, and shows what came out.

mod ad_hoc;
mod compare;
mod demo;
mod diagnosis_page;
mod host_page;
mod list;
mod load;
mod names;
mod open;
mod output;
mod overhead;
mod promises;
mod report;
mod run;
mod servers;
mod signals;
mod steps;
mod wake;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gleaner_print::Generate;

/// Before each message.
const NAME: &str = "gleaner-bench";

/// Measure commands, workloads and real servers with and without Gleaner
#[derive(Debug, Parser)]
#[command(name = NAME, version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // The help of these is that of their arguments: a comment here would take its place.
    Run(run::Args),
    List(list::Args),
    Compare(compare::Args),
    Report(report::Args),
    Demo(demo::Args),
    Workload(workload::Args),
    #[command(hide = true)]
    Load(load::Args),
    #[command(hide = true)]
    Wake(wake::Args),
    #[command(hide = true)]
    DiagnosisPage(diagnosis_page::Args),
    #[command(hide = true)]
    HostPage(host_page::Args),
    Servers(servers::Args),
    Signals(signals::Args),
    Open(open::Args),
    Steps(steps::FollowLoad),
    ExpandSteps(steps::Expand),
    Overhead(overhead::Args),
    Promises(promises::Args),
    #[command(hide = true)]
    StepLoad(steps::Load),
    #[command(hide = true)]
    Cell(servers::Cell),
    #[command(hide = true)]
    Rate(servers::Rate),
    #[command(flatten)]
    Generate(Generate),
}

fn main() -> ExitCode {
    let done = match gleaner_print::parse::<Cli>(NAME).command {
        Command::Run(args) => run::run(&args),
        Command::List(args) => list::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Workload(args) => workload::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Wake(args) => wake::run(&args),
        Command::DiagnosisPage(args) => diagnosis_page::run(&args),
        Command::HostPage(args) => host_page::run(&args),
        Command::Generate(what) => what.run::<Cli>(NAME, env!("CARGO_PKG_VERSION")),
        Command::Servers(args) => servers::run(&args),
        Command::Signals(args) => signals::run(&args),
        Command::Open(args) => open::run(&args),
        Command::Steps(args) => steps::follow_load(&args),
        Command::ExpandSteps(args) => steps::expand(&args),
        Command::Overhead(args) => overhead::run(&args),
        Command::Promises(args) => promises::run(&args),
        Command::StepLoad(args) => steps::load(&args),
        Command::Cell(args) => servers::cell(&args),
        Command::Rate(args) => servers::rate(&args),
    };
    done.unwrap_or_else(|error| gleaner_print::failure(NAME, error.as_ref()))
}
