//! `gleaner`: wake-up speed of bare metal for a program in a virtual machine. Thin subcommands over the libraries.

mod attach;
mod bench;
mod calibrate;
mod choice;
mod cli;
mod control;
mod demo;
mod diagnose;
mod doctor;
mod fold;
mod forget;
mod generate;
mod group;
mod load;
mod memory;
mod names;
mod overload;
mod record;
mod replay;
mod report;
mod restore;
mod run;
mod sim;
mod sockets;
mod summary;
mod top;
mod waiting;
mod wake;
mod why;
mod workload;

use std::process::ExitCode;

use gleaner_engine::live::SpawnError;
use gleaner_print::say;

use cli::{Cli, Command};

/// Before each message.
const NAME: &str = "gleaner";

fn main() -> ExitCode {
    let done = match gleaner_print::parse::<Cli>(NAME).command {
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
        Command::Forget(args) => forget::run(&args),
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => generate::man(&args),
        Command::Workload(args) => workload::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Wake(args) => wake::run(&args),
    };
    done.unwrap_or_else(|error| match error.downcast_ref::<SpawnError>() {
        // As `run` does: 126 and 127.
        Some(spawn) => {
            say!("{NAME}: {error:#}");
            ExitCode::from(spawn.exit_code())
        }
        None => gleaner_print::failure(NAME, error.as_ref()),
    })
}
