//! The benchmark behind `docs/benchmarks.md`: an experiment whose rows are real servers.
//!
//! [`run`] returns the same result as any other experiment. [`RowReport`] judges its rows by their targets and by the
//! static setting that turned out best, and [`markdown()`] shows that.

mod markdown;
mod numbers;
mod report;
mod update;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use gleaner_proto::result::{BenchResult, Class, Metric};

pub use markdown::markdown;
pub use report::{ModeStanding, RowReport, Standing};
pub use update::{fits, keep_rows_of};

use crate::experiment::{self, Experiment, ExperimentError, Program, Rounds};
use crate::mode::Mode;
use crate::servers::{Row, ServersError, Window, check_programs};

/// The modes that are compared if no others are named.
pub const STANDARD_MODES: &str = "default,gleaner,haltpoll:200us,qos-poll,consolidate:1";

/// A row that runs beside others is stopped when they have been measured.
const BESIDE: Window = Window { warmup: Duration::ZERO, length: Duration::from_secs(3600) };

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rows to measure, in order.
    pub rows: Vec<Row>,
    /// Rows whose servers and loads run beside each of them, untouched.
    pub beside: Vec<Row>,
    /// Modes to interleave.
    pub modes: Vec<Mode>,
    /// Measurements of each mode per row.
    pub rounds: usize,
    /// Warm-up of each cell; `None`: as each row needs it.
    pub warmup: Option<Duration>,
    /// Measured time of each cell; `None`: as each row needs it.
    pub length: Option<Duration>,
    /// Seed of the order of modes.
    pub seed: u64,
}

/// Measures all rows in all modes. After a signal (see [`crate::runner::watch`]), the result contains the
/// measurements so far.
///
/// # Errors
/// If a program or the `gleaner` binary is missing, or nothing can be measured at all.
pub fn run(options: &Options, how: &experiment::Options) -> Result<BenchResult, ExperimentError> {
    // Rather than after the first rows.
    check_programs(&options.rows)?;
    check_programs(&options.beside)?;
    if options.modes.iter().any(|mode| *mode != Mode::Default) {
        fs::metadata(&how.gleaner).map_err(ServersError::file("find", &how.gleaner))?;
    }
    let experiment = Experiment {
        title: "Real servers".to_owned(),
        source: String::new(),
        modes: options.modes.clone(),
        rows: options.rows.iter().map(|row| options.row(row)).collect(),
        rounds: Rounds { least: options.rounds, most: options.rounds, precision: None },
        warmup_rounds: 0,
        window: options.length.unwrap_or(Duration::from_secs(2)),
        seed: options.seed,
    };
    experiment::run(&experiment, how)
}

impl Options {
    fn row(&self, row: &Row) -> experiment::Row {
        let window = row.window(self.warmup, self.length);
        experiment::Row {
            name: row.name.to_owned(),
            program: Program::Server { row: *row, window },
            unit: row.unit.to_owned(),
            primary: if row.class == Class::Latency { Metric::MeanUs } else { Metric::Throughput },
            expressions: Vec::new(),
            co_runners: self.beside.iter().map(|row| Program::Server { row: *row, window: BESIDE }).collect(),
            prepare: None,
            paper: BTreeMap::new(),
            paper_ratio: BTreeMap::new(),
            timeout: window.timeout(),
            adapter: None,
        }
    }
}
