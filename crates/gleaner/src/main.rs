//! `gleaner`: wake-up speed of bare metal for a program in a virtual machine. Thin subcommands over the libraries; those of
//! the laboratory run its programs, `gleaner-bench` and `gleaner-sim`.

mod attach;
mod cli;
mod client;
mod config;
mod control;
mod detach;
mod diagnose;
mod doctor;
mod forget;
mod group;
mod laboratory;
mod metrics;
mod names;
mod options;
mod pause;
mod record;
mod restore;
mod run;
mod status;
mod top;
mod why;

use std::process::ExitCode;

use gleaner_engine::live::SpawnError;
use gleaner_print::say;

use cli::{Cli, Command};

/// Prefix of messages.
const NAME: &str = "gleaner";

fn main() -> ExitCode {
    if let Some(error) = cli::laboratory_help() {
        return gleaner_print::failure(NAME, &error);
    }
    let done = match gleaner_print::parse::<Cli>(NAME).command {
        Command::Run(args) => return run::run(&args),
        Command::Attach(args) => attach::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Detach(args) => detach::run(&args),
        Command::Pause(args) => pause::pause(&args),
        Command::Resume(args) => pause::resume(&args),
        Command::Reload(args) => pause::reload(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Why(args) => why::run(&args),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Forget(args) => forget::run(&args),
        Command::Config(_) => Err(config::run().into()),
        Command::Generate(what) => what.run::<Cli>(NAME, cli::VERSION),
        Command::Laboratory(command) => Err(command.run().into()),
    };
    done.unwrap_or_else(|error| match error.downcast_ref::<SpawnError>() {
        // 126 or 127, as for `run`.
        Some(spawn) => {
            say!("{NAME}: {error:#}");
            ExitCode::from(spawn.exit_code())
        }
        None => gleaner_print::failure(NAME, error.as_ref()),
    })
}
