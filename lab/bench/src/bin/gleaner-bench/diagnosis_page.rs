//! `gleaner-bench diagnosis-page`: the page of `gleaner diagnose -o FILE`. Hidden.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use gleaner_bench::environment;
use gleaner_kernel::Root;
use gleaner_proto::diagnosis::Page;
use gleaner_proto::result::write_file;
use gleaner_report::diagnosis;

/// Write the page of the diagnosis that `gleaner diagnose` writes into the standard input
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the page goes
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let page: Page =
        serde_json::from_reader(io::stdin().lock()).context("standard input is not a diagnosis")?;
    let environment = environment::read(&Root::system())?;
    let html = diagnosis::html(&page.diagnosis, &environment, &page.counted);
    write_file(&args.file, html.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
