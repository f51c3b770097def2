//! `gleaner-sim sweep FILE`.

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use gleaner_print::files::distinct;
use gleaner_print::{say, write_bytes};
use gleaner_sim::parallel;
use gleaner_sim::sweep::{Axis, Row, SHARES, Sweep, Value};

use super::progress;
use super::table::{Cells, Format, Table};

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

fn table(axes: &[Axis], rows: &[Row]) -> Table {
    let mut table = Table::default();
    table.column("point", Cells::integers(rows, |r| r.point as u64));
    for (index, axis) in axes.iter().enumerate() {
        table.column(&axis.key, values(rows, index));
    }
    table.column("vm", Cells::texts(rows, |r| r.vm.clone()));
    table.column("program", Cells::texts(rows, |r| r.program.clone()));
    table.column("end", Cells::texts(rows, |r| r.end.clone()));
    table.column("elapsed_ns", Cells::integers(rows, |r| r.elapsed_ns));
    let finished = rows.iter().map(|r| r.totals.finished.and_then(|ns| i64::try_from(ns).ok()));
    table.column("finished_ns", Cells::Integers(finished.collect()));
    table.column("operations", Cells::integers(rows, |r| r.totals.operations));
    table.column("operations_per_s", Cells::floats(rows, |r| r.operations_per_s));
    table.column("cpu_ns", Cells::integers(rows, |r| r.totals.cpu));
    table.column("run_delay_ns", Cells::integers(rows, |r| r.totals.run_delay));
    table.column("switches", Cells::integers(rows, |r| r.totals.switches));
    table.column("wakes", Cells::integers(rows, |r| r.totals.wakes));
    table.column("wake_us", Cells::floats(rows, |r| r.wake_us));
    table.column("vm_halts_per_s_and_vcpu", Cells::floats(rows, |r| r.halts_per_s));
    table.column("vm_interrupts", Cells::integers(rows, |r| r.interrupts));
    table.column("vm_host_cpu_ns", Cells::integers(rows, |r| r.host_cpu_ns));
    for (index, (name, _)) in SHARES.iter().enumerate() {
        table.column(&format!("vm_{name}"), Cells::floats(rows, |r| r.shares[index]));
    }
    table
}

/// An axis's values, as numbers if all of them are.
fn values(rows: &[Row], index: usize) -> Cells {
    let all = || rows.iter().map(|r| &r.values[index]);
    let integers: Option<Vec<_>> =
        all().map(|v| if let Value::Integer(n) = v { Some(Some(*n)) } else { None }).collect();
    let float = |v: &Value| match v {
        Value::Integer(n) => Some(Some(*n as f64)),
        Value::Float(x) => Some(Some(*x)),
        _ => None,
    };
    let text = |v: &Value| match v {
        Value::Text(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    integers
        .map(Cells::Integers)
        .or_else(|| all().map(float).collect::<Option<Vec<_>>>().map(Cells::Floats))
        .unwrap_or_else(|| Cells::Texts(all().map(text).collect()))
}
