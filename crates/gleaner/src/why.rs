//! `gleaner why`: what a run did and why, from its journal.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use gleaner_engine::StateDir;
use gleaner_explain::Sentence;
use gleaner_print::outln;
use gleaner_proto::journal::{self, Record, Summary};
use serde::Serialize;

/// Say what the latest run did, when and why, from its journal
///
/// Each change was a hypothesis: it was tried in blocks that alternated with blocks without it, and kept only if it
/// proved itself. Under `--fixed` and `--strategy paper` nothing is proven, and the story says so. Times count from the
/// start of the run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The journal [default: that of the latest run without `--journal`]
    file: Option<PathBuf>,
    /// Print the story as JSON
    #[arg(long)]
    json: bool,
}

/// Version of the JSON form.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    journal: PathBuf,
    story: Vec<Sentence>,
    summary: Option<&'a Summary>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = match &args.file {
        Some(path) => path.clone(),
        None => latest()?,
    };
    let records = journal::read(&path)?;
    let story = gleaner_explain::journal_sentences(&records);
    if args.json {
        let summary = records.iter().rev().find_map(|record| match record {
            Record::End { summary, .. } => Some(summary),
            _ => None,
        });
        let report = Report { version: VERSION, journal: path, story, summary };
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        for sentence in story {
            outln!("{sentence}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn latest() -> anyhow::Result<PathBuf> {
    let path = StateDir::default_place()?.journal();
    if !path.exists() {
        bail!(
            "no run has been recorded yet: {} does not exist; `gleaner run -- COMMAND` makes it",
            path.display()
        );
    }
    Ok(path)
}
