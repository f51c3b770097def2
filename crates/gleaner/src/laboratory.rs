//! Commands of the laboratory: the program beside this one that has them takes over, with the same arguments.

use std::ffi::OsString;

use gleaner_print::{SiblingError, become_sibling};

const BENCH: &str = "gleaner-bench";
const SIM: &str = "gleaner-sim";

/// What is passed on.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Its own arguments; --help describes them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Run the built-in workloads with and without Gleaner (gleaner-bench)
    Demo(Args),
    /// Measure commands in several modes, interleaved, as the papers do (gleaner-bench)
    Bench(Args),
    /// Turn a result file into a page with plots (gleaner-bench)
    Report(Args),
    /// Run one built-in workload (gleaner-bench)
    Workload(Args),
    /// Simulate hosts, VMs, programs and policies (gleaner-sim)
    Sim(Args),
    /// Show what Gleaner would have tried on a recorded pattern, or decide on a journal again (gleaner-sim)
    Replay(Args),
}

impl Command {
    /// Becomes the other program. Returns only where that fails.
    pub(crate) fn run(self) -> SiblingError {
        let (program, subcommand, Args { arguments }) = match self {
            Self::Demo(args) => (BENCH, Some("demo"), args),
            Self::Bench(args) => (BENCH, None, args),
            Self::Report(args) => (BENCH, Some("report"), args),
            Self::Workload(args) => (BENCH, Some("workload"), args),
            Self::Sim(args) => (SIM, None, args),
            Self::Replay(args) => (SIM, Some("replay"), args),
        };
        become_sibling(program, subcommand.map(OsString::from).into_iter().chain(arguments))
    }
}
