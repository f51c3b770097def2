//! `signals` holds the signals of progress against what programs say.

use std::process::ExitCode;

use anyhow::Result;
use gleaner_bench::{runner, signals};
use gleaner_print::Usage;

use crate::output::{Binary, ReportFiles, bench, repeat_with, status};

/// Compare Gleaner's signals of progress with the rates that programs report
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each setting is measured per case
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Only these cases: names or parts of names, separated by commas; a wrong one lists them
    #[arg(long, value_name = "NAMES", default_value = "")]
    only: String,
    #[command(flatten)]
    report: ReportFiles,
    #[command(flatten)]
    binary: Binary,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    args.report.check()?;
    let cases = signals::find(&args.only).map_err(|error| Usage(error.to_string()))?;
    runner::watch()?;
    let bench = bench()?;
    let gleaner = args.binary.path()?;
    let report = signals::run(&signals::Options {
        cases,
        rounds: args.rounds.into(),
        gleaner,
        bench,
        repeat_with: repeat_with(),
    })?;
    args.report.write(&report, &report.markdown())?;
    Ok(status(!report.failures.is_empty(), report.interrupted))
}
