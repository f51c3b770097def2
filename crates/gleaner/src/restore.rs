//! `gleaner restore`: restores what a killed Gleaner left changed.

use std::process::ExitCode;

use gleaner_engine::{StateDir, UndoResult};
use gleaner_kernel::Root;
use gleaner_print::{outln, say};

/// Put back every change that a killed gleaner left on this machine
///
/// Each change was recorded before it was made. A value that somebody else has changed since is theirs and stays.
/// Exit status: 0 if nothing is left behind, 1 if something could not be put back or another gleaner is at work.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print nothing but what could not be put back
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let outcomes = gleaner_engine::restore(&StateDir::default_place()?, &Root::system())?;
    if outcomes.is_empty() && !args.quiet {
        outln!("nothing to put back")?;
    }
    for outcome in &outcomes {
        if outcome.undone == UndoResult::Failed {
            say!("gleaner: could not be put back: {}", outcome.detail);
        } else if !args.quiet {
            outln!("{}", outcome.detail)?;
        }
    }
    let failed = outcomes.iter().any(|outcome| outcome.undone == UndoResult::Failed);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
