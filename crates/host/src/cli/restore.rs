//! `gleaner-host restore`.

use std::process::ExitCode;

use clap::Args;
use gleaner_engine::UndoResult;
use gleaner_host::halt_poll::restore;
use gleaner_kernel::Root;
use gleaner_print::{outln, say};

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Print nothing but what could not be put back
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let outcomes = restore(&super::halt_poll::state()?, &Root::system())?;
    if outcomes.is_empty() && !args.quiet {
        outln!("nothing to put back")?;
    }
    for outcome in &outcomes {
        if outcome.undone == UndoResult::Failed {
            say!("{}: could not be put back: {}", crate::NAME, outcome.detail);
        } else if !args.quiet {
            outln!("{}", outcome.detail)?;
        }
    }
    let failed = outcomes.iter().any(|outcome| outcome.undone == UndoResult::Failed);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
