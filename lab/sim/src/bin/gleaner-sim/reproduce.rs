//! `gleaner-sim reproduce`.

mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use gleaner_print::{out, outln};
use gleaner_proto::result::{check_place, write_file};
use gleaner_sim::reproduce::{Paper, Report, lab, reproduce};

use super::progress;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which paper [default: all of them]
    #[arg(long, value_enum)]
    paper: Option<PaperName>,
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
    /// Also write the figures (SVG), a page with everything (index.html) and the values (reproduction.json) there
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Beside the figures of ASPLOS'13, what `scx_gleaner` did in the lab: docs/lab.json, which `make lab` writes
    #[arg(long, value_name = "FILE", requires = "output")]
    lab: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PaperName {
    /// Gleaner (USENIX ATC 2014)
    Atc14,
    /// Demand-based coordinated scheduling (ASPLOS 2013)
    Asplos13,
    /// Idle polling and halt polling on SMT processors (HP3C 2020)
    Hp3c20,
    /// Virtualization overhead of multithreading (IEEE TPDS 2021)
    Tpds21,
}

impl From<PaperName> for Paper {
    fn from(name: PaperName) -> Self {
        match name {
            PaperName::Atc14 => Self::Atc14,
            PaperName::Asplos13 => Self::Asplos13,
            PaperName::Hp3c20 => Self::Hp3c20,
            PaperName::Tpds21 => Self::Tpds21,
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(dir) = &args.output {
        fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
        // Check now: minutes of simulation must not be lost to a directory that cannot be written.
        check_place(&dir.join("index.html"))?;
    }
    let outcomes = args.lab.as_deref().map(read_lab).transpose()?.unwrap_or_default();
    let papers: Vec<Paper> = args.paper.map_or(Paper::ALL.to_vec(), |name| vec![name.into()]);
    let bar = progress("simulations", 0);
    let mut papers = reproduce(&papers, args.output.is_some(), &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    for paper in papers.iter_mut().filter(|paper| paper.name == "asplos13") {
        lab::put_beside(&mut paper.figures, &outcomes);
    }
    let report = Report { version: env!("CARGO_PKG_VERSION").to_owned(), papers };
    if let Some(dir) = &args.output {
        write(&report, dir)?;
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out!("{}", text::text(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read_lab(path: &Path) -> anyhow::Result<Vec<lab::Outcome>> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} has no outcomes of the lab", path.display()))
}

fn write(report: &Report, dir: &Path) -> anyhow::Result<()> {
    for figure in gleaner_report::reproduction::figures(report) {
        write_file(&dir.join(format!("{}.svg", figure.name)), figure.file().as_bytes())?;
    }
    write_file(&dir.join("reproduction.json"), &serde_json::to_vec(report)?)?;
    write_file(&dir.join("index.html"), gleaner_report::reproduction::html(report)?.as_bytes())?;
    Ok(())
}
