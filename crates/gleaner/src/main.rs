//! `gleaner`: wake-up speed of bare metal for a program in a virtual machine. Thin subcommands over the libraries.

mod attach;
mod bench;
mod calibrate;
mod choice;
mod cli;
mod control;
mod crowds;
mod demo;
mod diagnose;
mod doctor;
mod fold;
mod generate;
mod load;
mod record;
mod replay;
mod report;
mod restore;
mod run;
mod sim;
mod summary;
mod top;
mod wake;
mod why;
mod workload;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => return run::run(&args),
        Command::Attach(args) => attach::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Report(args) => report::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Completions(args) => return generate::completions(&args),
        Command::Man => generate::man(),
        Command::Workload(args) => workload::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Wake(args) => wake::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("gleaner: {error:#}");
        ExitCode::FAILURE
    })
}
