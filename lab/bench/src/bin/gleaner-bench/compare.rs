//! `gleaner bench compare`: compares two result files.

use std::path::PathBuf;
use std::process::ExitCode;

use gleaner_bench::compare::compare;
use gleaner_print::{out, outln};
use gleaner_proto::result::BenchResult;

/// Compare two result files: ratios with their intervals, row by row and mode by mode
///
/// Where one was measured on bare metal and the other one in a virtual machine: the overhead of virtualisation in time
/// and in resources, and how the two go together.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The baseline
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// What is compared with it
    #[arg(value_name = "B.json")]
    b: PathBuf,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let compared = compare(&BenchResult::read(&args.a)?, &BenchResult::read(&args.b)?)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&compared)?)?;
    } else {
        out!("{compared}")?;
    }
    Ok(ExitCode::SUCCESS)
}
