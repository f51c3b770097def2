//! The command line: the one definition from which parsing, help, man pages and completions come.

use std::ffi::OsString;

use clap::{Parser, Subcommand};
use gleaner_print::config::ConfigArgs;
use gleaner_print::{Generate, SiblingError};

use crate::options::{AttachArgs, RunArgs};
use crate::{
    detach, diagnose, doctor, forget, laboratory, metrics, pause, record, restore, status, top, why,
};

/// Wake-up speed of bare metal for a program in a virtual machine
#[derive(Debug, Parser)]
#[command(name = "gleaner", version = VERSION, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Includes the commit if built from a checkout.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("GLEANER_COMMIT"));

const AFTER_HELP: &str = "\
Exit status: 0 success, 1 failure, 2 usage error. `gleaner run` always runs the command, also where it cannot \
help, and passes its status on; 126 if the command could not be executed, 127 if it was not found, 128+N if signal N \
ended it; 125 if Gleaner cannot help and --require was given, or not even the command can be started.

Start with `gleaner doctor`, then `gleaner run -- COMMAND`, then `gleaner why`.";

// The help of most is that of their arguments: a comment here would take its place.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command and make its wake-ups fast
    Run(RunArgs),
    /// Make the wake-ups of a running program fast, until it ends or Ctrl-C
    Attach(AttachArgs),
    Status(status::Args),
    Detach(detach::Args),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Reload(pause::ReloadArgs),
    Metrics(metrics::Args),
    Doctor(doctor::Args),
    Why(why::Args),
    Diagnose(diagnose::Args),
    Top(top::Args),
    Record(record::Args),
    Restore(restore::Args),
    Forget(forget::Args),
    /// Check or show the configuration of the daemon, gleanerd
    Config(ConfigArgs),
    #[command(flatten)]
    Laboratory(laboratory::Command),
    #[command(flatten)]
    Generate(Generate),
}

/// Becomes the program that describes the command of `gleaner help COMMAND`. Returns `None` if this program does, and
/// an error if the other one cannot be run.
pub(crate) fn laboratory_help() -> Option<SiblingError> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let [program, help, command @ ..] = &words[..] else { return None };
    if help != "help" {
        return None;
    }
    // These commands pass --help on; for any other this is no command line, but a request for help.
    let asked = [program].into_iter().chain(command).cloned().chain(["--help".into()]);
    match Cli::try_parse_from(asked).ok()?.command {
        Command::Laboratory(command) => Some(command.run()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
