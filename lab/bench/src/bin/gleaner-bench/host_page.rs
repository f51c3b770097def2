//! `gleaner-bench host-page`: the page of `gleaner-host diagnose --html FILE`. Hidden.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use gleaner_host_record::Report;
use gleaner_proto::result::write_file;
use gleaner_report::host;

/// Write the page of the record that `gleaner-host diagnose` writes into the standard input
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the page goes
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut json = String::new();
    io::stdin().lock().read_to_string(&mut json).context("cannot read the standard input")?;
    let record = Report::parse(json.as_bytes(), Path::new("standard input"))?;
    write_file(&args.file, host::html(&record, &json).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
