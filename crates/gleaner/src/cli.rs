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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command and make its wake-ups fast
    Run(RunArgs),
    /// Make the wake-ups of a running program fast, until it ends or Ctrl-C
    Attach(AttachArgs),
    /// Show what gleanerd is doing
    Status(status::Args),
    /// Have gleanerd leave a workload alone
    Detach(detach::Args),
    /// Have gleanerd change nothing for a while
    Pause(pause::PauseArgs),
    /// End what `pause` started
    Resume(pause::ResumeArgs),
    /// Have gleanerd read its configuration again
    Reload(pause::ReloadArgs),
    /// Print gleanerd's metrics in the OpenMetrics text format
    Metrics(metrics::Args),
    /// Measure what a wake-up costs in this VM, and report the possible gain
    Doctor(doctor::Args),
    /// Explain in sentences with numbers what gleanerd or a run did
    Why(why::Args),
    /// Say what a program loses to virtualisation, by cause
    Diagnose(diagnose::Args),
    /// Show the machine and the running Gleaner, live
    Top(top::Args),
    /// Record which threads run, wait and wake each other, as a compact trace
    Record(record::Args),
    /// Put back what a killed Gleaner left changed
    Restore(restore::Args),
    /// Forget what earlier runs showed of programs, or list it
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
