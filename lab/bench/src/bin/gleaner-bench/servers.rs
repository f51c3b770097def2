//! `servers` measures rows of real servers; `cell` and `rate` are its parts in a process of their own.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use gleaner_bench::mode::Mode;
use gleaner_bench::servers::{self, Window};
use gleaner_bench::suite::{self, STANDARD_MODES};
use gleaner_bench::{experiment, runner};
use gleaner_print::times::{seconds, seconds_or_none};
use gleaner_print::{Usage, outln};
use gleaner_proto::result::{BenchResult, Ending};

use crate::output::{Binary, ReportFiles, bench, repeat_with, status, write};

/// Measure servers from Debian's packages in every mode, and report ratios with their intervals
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each mode is measured per row
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Measured time per cell, in seconds [default: 2; open loops 3]
    #[arg(long, value_parser = seconds)]
    window: Option<Duration>,
    /// Time before it in which the load runs unmeasured, in seconds [default: 1; open loops and unseen programs 2]
    #[arg(long, value_parser = seconds_or_none)]
    warmup: Option<Duration>,
    /// Only these rows: names or parts of names, separated by commas
    #[arg(long, default_value = "")]
    rows: String,
    /// Rows whose servers and loads run beside each measured one, as they are, separated by commas
    #[arg(long, value_name = "ROWS", conflicts_with = "update")]
    beside: Option<String>,
    /// Modes: default, gleaner, gleanerd, or what `gleaner run --fixed` takes
    #[arg(long, value_delimiter = ',', default_value = STANDARD_MODES, value_parser = Mode::here)]
    modes: Vec<Mode>,
    /// Seed of the order of modes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep the rows that the output file has and that are not measured now
    #[arg(long, requires = "output")]
    update: bool,
    #[command(flatten)]
    report: ReportFiles,
    #[command(flatten)]
    binary: Binary,
}

/// Measure one row once, in this process
#[derive(Debug, clap::Args)]
pub(crate) struct Cell {
    /// The row
    row: String,
    /// Measured time
    #[arg(long, value_parser = seconds)]
    seconds: Duration,
    /// Time before it
    #[arg(long, default_value = "1", value_parser = seconds_or_none)]
    warmup: Duration,
    /// Where prepared data, sockets and logs are
    #[arg(long)]
    state: PathBuf,
    /// Where the measurement is written, as JSON
    #[arg(long)]
    out: PathBuf,
    /// What the server alone is started behind
    #[arg(last = true)]
    wrapper: Vec<OsString>,
}

/// Run one row's load in this process and print its rate each second, until the output is closed
#[derive(Debug, clap::Args)]
pub(crate) struct Rate {
    /// The row
    row: String,
    /// Where prepared data, sockets and logs are
    #[arg(long)]
    state: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    args.report.check()?;
    let rows = servers::find(&args.rows).map_err(|error| Usage(error.to_string()))?;
    let beside = args.beside.as_deref().map_or(Ok(Vec::new()), servers::find);
    let beside = beside.map_err(|error| Usage(error.to_string()))?;
    let earlier = args.report.output.as_deref().filter(|_| args.update).map(BenchResult::read).transpose()?;
    if let Some(earlier) = &earlier {
        suite::fits(earlier, &args.modes)?;
    }
    runner::watch()?;
    let options = suite::Options {
        rows,
        beside,
        modes: args.modes.clone(),
        rounds: args.rounds.into(),
        warmup: args.warmup,
        length: args.window,
        seed: args.seed,
    };
    let how = experiment::Options {
        gleaner: args.binary.path()?,
        bench: bench()?,
        repeat_with: repeat_with(),
        quiet: false,
        keep_going: true,
    };
    let mut result = suite::run(&options, &how)?;
    let status = status(!result.failures.is_empty(), result.ending != Ending::Complete);
    if let Some(earlier) = earlier {
        suite::keep_rows_of(&mut result, earlier);
    }
    args.report.write(&result, &suite::markdown(&result))?;
    Ok(status)
}

pub(crate) fn cell(args: &Cell) -> Result<ExitCode> {
    runner::watch()?;
    let window = Window { warmup: args.warmup, length: args.seconds };
    let measured = servers::measure(&one_row(&args.row)?, &args.state, window, &args.wrapper)?;
    write(&args.out, &serde_json::to_string(&measured)?)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn rate(args: &Rate) -> Result<ExitCode> {
    runner::watch()?;
    let print = |rate: f64| {
        let printed = outln!("{rate}");
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    servers::watch(&one_row(&args.row)?, &args.state, print)?;
    Ok(ExitCode::SUCCESS)
}

fn one_row(name: &str) -> Result<servers::Row> {
    let mut rows = servers::find(name)?;
    anyhow::ensure!(rows.len() == 1, "`{name}` is not one row");
    Ok(rows.remove(0))
}
