//! `gleaner-sim sweep FILE`.

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use gleaner_print::files::distinct;
use gleaner_print::{say, write_bytes};
use gleaner_sim::parallel;
use gleaner_sim::sweep::{Axis, Sweep, table};
use gleaner_sim::table::Format;

use super::progress;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The scenario, see docs/sim.md
    file: PathBuf,
    /// Vary a value: KEY=VALUE,VALUE,… or KEY=FIRST..LAST, besides those in the file's [sweep]; as often as needed
    #[arg(long, value_name = "KEY=VALUES")]
    set: Vec<Axis>,
    /// Where the results go; the ending decides: .csv or .parquet. Without it, as CSV to the standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How many simulations run at a time; without it, as many as there are cores
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Report an unknown format before computing anything.
    let format = match &args.output {
        Some(path) => Format::of(path)?,
        None => Format::Csv,
    };
    distinct(&[&args.file], &args.output)?;
    let sweep = Sweep::read(&args.file, args.set.clone())?;
    let bar = progress("scenarios", sweep.points());
    let rows = sweep.run(args.jobs.unwrap_or_else(parallel::cores), || bar.inc(1))?;
    bar.finish_and_clear();
    let table = table(sweep.axes(), &rows);
    if let Some(path) = &args.output {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        table.write(format, file).with_context(|| format!("cannot write {}", path.display()))?;
        say!("gleaner-sim: {} scenarios, {} rows in {}", sweep.points(), rows.len(), path.display());
    } else {
        let mut csv = Vec::new();
        table.write(format, &mut csv)?;
        write_bytes(&csv)?;
    }
    let unfinished =
        rows.iter().find(|row| row.end.starts_with("deadlock") || row.end.starts_with("the event"));
    if let Some(row) = unfinished {
        bail!("combination {} ended early: {}", row.point, row.end);
    }
    Ok(ExitCode::SUCCESS)
}
