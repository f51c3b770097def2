//! `gleaner detach`: leaves a workload of the daemon alone.

use std::process::ExitCode;

use gleaner_print::outln;
use serde_json::json;

use crate::client;

/// Undo what gleanerd has in force for a workload, and leave it alone
///
/// Until `gleaner attach` names it, `gleaner resume`, or gleanerd is restarted. To leave it alone for good, exclude it in
/// `/etc/gleaner/gleaner.toml`. Needs root.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The workload, as `gleaner status` names it
    #[arg(value_name = "WORKLOAD")]
    workload: String,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    client::connect()?.detach(&args.workload)?;
    if args.json {
        outln!("{}", json!({ "version": 1, "workload": args.workload, "state": "left_alone" }))?;
    } else {
        outln!("`{}` is left alone, and nothing is in force for it any more", args.workload)?;
    }
    Ok(ExitCode::SUCCESS)
}
