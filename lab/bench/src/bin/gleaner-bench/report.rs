//! `gleaner report`: turns a result file, or the record of a host, into a page, and its plots into files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use gleaner_host_record::{Report, is_record};
use gleaner_print::files::distinct;
use gleaner_print::say;
use gleaner_proto::result::{BenchResult, write_file};
use gleaner_report::page::Figure;
use gleaner_report::{bench, host};

use crate::NAME;

/// Turn a result file, or the record of a host, into one self-contained page
///
/// The page has the plots, the numbers, the machine, the commands that repeat the measurement, and the raw data. It
/// needs no network and follows the reader's light or dark scheme. That of a host's record is the page that
/// `gleaner-host diagnose --html` writes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The result file of `gleaner bench run`, or what `gleaner-host diagnose --json` wrote
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
    /// Write the page here [default: beside the result file, with the ending .html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write each plot as an SVG file into this directory too
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

/// What the page is made of.
enum Source {
    Result(Box<BenchResult>),
    /// With the text of the file, which becomes part of the page.
    Host(Box<Report>, String),
}

impl Source {
    fn read(path: &Path) -> anyhow::Result<Self> {
        // One that cannot be read is reported as a result file.
        match fs::read_to_string(path) {
            Ok(json) if is_record(json.as_bytes()) => {
                Ok(Self::Host(Box::new(Report::parse(json.as_bytes(), path)?), json))
            }
            _ => Ok(Self::Result(Box::new(BenchResult::read(path)?))),
        }
    }

    fn figures(&self) -> Vec<Figure> {
        match self {
            Self::Result(result) => bench::figures(result),
            Self::Host(record, _) => host::figures(record),
        }
    }

    fn page(&self) -> anyhow::Result<String> {
        match self {
            Self::Result(result) => Ok(bench::html(result)?),
            Self::Host(record, json) => Ok(host::html(record, json)),
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let output = args.output.clone().unwrap_or_else(|| args.result.with_extension("html"));
    let source = Source::read(&args.result)?;
    let figures = if args.svg.is_some() { source.figures() } else { Vec::new() };
    let svg = |dir: &PathBuf| -> Vec<PathBuf> {
        figures.iter().map(|figure| dir.join(&figure.name).with_extension("svg")).collect()
    };
    let svgs = args.svg.as_ref().map(svg).unwrap_or_default();
    // Before anything is written.
    distinct(&[&args.result], svgs.iter().chain([&output]))?;
    let page = source.page()?;
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
