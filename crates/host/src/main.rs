//! `gleaner-host`: what a KVM host spends on its guests.

mod cli;
mod page;
mod privileges;
mod serve;

use std::process::ExitCode;

use cli::{Cli, Command};

/// Prefix of messages.
const NAME: &str = "gleaner-host";
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn main() -> ExitCode {
    let done = match gleaner_print::parse::<Cli>(NAME).command {
        Command::List(args) => cli::list(&args),
        Command::Diagnose(args) => cli::diagnose(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Top(args) => cli::top(&args),
        Command::HaltPoll(what) => cli::halt_poll::run(&what),
        Command::Sched(what) => cli::sched::run(&what),
        Command::Restore(args) => cli::restore::run(&args),
        Command::Generate(what) => what.run::<Cli>(NAME, VERSION),
    };
    done.unwrap_or_else(|error| gleaner_print::failure(NAME, error.as_ref()))
}
