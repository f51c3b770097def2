//! `overhead` measures what the harness costs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use gleaner_bench::experiment::overhead;
use gleaner_bench::runner;
use gleaner_print::{out, sibling};

use crate::output::write;

/// Measure what the harness costs beyond an empty command
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often the command runs each way
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,
    /// Write the numbers as JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    runner::watch()?;
    let overhead = overhead::measure(&sibling("gleaner")?, args.pairs)?;
    if let Some(file) = &args.output {
        write(file, &serde_json::to_string_pretty(&overhead)?)?;
    }
    out!("{overhead}")?;
    Ok(ExitCode::SUCCESS)
}
