//! `gleaner report`: turns a result file into a page, and its plots into files.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use gleaner_print::files::distinct;
use gleaner_print::say;
use gleaner_proto::result::{BenchResult, write_file};
use gleaner_report::bench;

use crate::NAME;

/// Turn a result file into one self-contained page
///
/// The page has the plots, the numbers, the machine, the commands that repeat the measurement, and the raw data. It
/// needs no network and follows the reader's light or dark scheme.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The result file of `gleaner bench run`
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
    /// Write the page here [default: beside the result file, with the ending .html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write each plot as an SVG file into this directory too
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let output = args.output.clone().unwrap_or_else(|| args.result.with_extension("html"));
    let result = BenchResult::read(&args.result)?;
    let figures = if args.svg.is_some() { bench::figures(&result) } else { Vec::new() };
    let svg = |dir: &PathBuf| -> Vec<PathBuf> {
        figures.iter().map(|figure| dir.join(&figure.name).with_extension("svg")).collect()
    };
    let svgs = args.svg.as_ref().map(svg).unwrap_or_default();
    // Before anything is written.
    distinct(&[&args.result], svgs.iter().chain([&output]))?;
    let page = bench::html(&result)?;
    if let Some(dir) = &args.svg {
        fs::create_dir_all(dir).with_context(|| {
            format!("cannot make the directory {}: give another one with --svg", dir.display())
        })?;
        for (figure, path) in figures.iter().zip(&svgs) {
            write_file(path, figure.file().as_bytes())?;
        }
        say!("{NAME}: wrote {} plots into {}", figures.len(), dir.display());
    }
    write_file(&output, page.as_bytes())?;
    say!("{NAME}: wrote {}", output.display());
    Ok(ExitCode::SUCCESS)
}
