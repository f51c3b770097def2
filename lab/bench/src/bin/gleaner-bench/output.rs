//! What the measuring commands share: the files they write, the programs they run, and how they end.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use gleaner_bench::runner;
use gleaner_print::{files, out, sibling};
use gleaner_proto::result::write_file;

/// What goes before the arguments to repeat a run from the source tree.
const REPEAT: &str = "make build && target/release/gleaner-bench";

/// Where a report goes.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportFiles {
    /// Write everything that was measured as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write the tables as Markdown; without this they are printed
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl ReportFiles {
    /// Refuses the same file for both formats, before anything is measured.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(files::distinct(&[], self.output.iter().chain(&self.markdown))?)
    }

    pub(crate) fn write(&self, report: &impl serde::Serialize, page: &str) -> Result<()> {
        if let Some(file) = &self.output {
            write(file, &serde_json::to_string_pretty(report)?)?;
        }
        match &self.markdown {
            Some(file) => write(file, page),
            None => Ok(out!("{page}")?),
        }
    }
}

/// What is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Binary {
    /// The gleaner binary [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    gleaner: Option<PathBuf>,
}

impl Binary {
    /// The binary to use.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        Ok(self.gleaner.clone().map_or_else(|| sibling("gleaner"), Ok)?)
    }
}

/// This program: it measures in processes of its own.
pub(crate) fn bench() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program")
}

/// The command line that repeats this run.
pub(crate) fn repeat_with() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("{REPEAT} {}", words.join(" "))
}

/// The exit status of a run: a failure of the measurement goes before an interruption.
pub(crate) fn status(failed: bool, interrupted: bool) -> ExitCode {
    match (failed, interrupted) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(runner::status()),
        (false, false) => ExitCode::SUCCESS,
    }
}

/// Writes or replaces the file whole.
pub(crate) fn write(file: &Path, text: &str) -> Result<()> {
    Ok(write_file(file, text.as_bytes())?)
}
