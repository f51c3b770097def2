//! The benchmark behind `docs/benchmarks.md`: rows of real servers in several modes, interleaved.
//!
//! [`run`] checks the requirements, runs the cells and returns a [`Report`], which judges Gleaner by the targets of
//! each row and by the static setting that turned out best.

mod markdown;
mod numbers;
mod part;
mod report;
mod update;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use gleaner_kernel::Root;

pub use part::Part;
pub use report::{LatencyMode, LatencyReport, ModeReport, Report, RowReport};

use crate::environment;
use crate::experiment::Session;
use crate::mode::Mode;
use crate::runner::{Plan, Problem, RowSamples};
use crate::servers::{
    Measured, Meter, Placement, Result, Row, ServersError, Window, check_programs, measure_apart, prepare,
};

/// The modes that are compared if no others are named.
pub const STANDARD_MODES: &str = "default,gleaner,haltpoll:200us,qos-poll,consolidate:1";

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rows to measure, in order.
    pub rows: Vec<Row>,
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
    /// The `gleaner` binary; not needed for the default mode.
    pub gleaner: PathBuf,
    /// The binary with the subcommand `cell ROW --warmup S --seconds S --state DIR --out FILE [-- WRAPPER…]`.
    pub bench: PathBuf,
    /// The command line that repeats this run, for the report.
    pub repeat_with: String,
}

/// Runs all cells, interleaved, and reports on those that could be measured. After a signal (see
/// [`crate::runner::watch`]), the report contains the measurements so far.
///
/// # Errors
/// If a program or the `gleaner` binary is missing, or a temporary directory cannot be created. A failed cell
/// is not an error; it is in the report.
pub fn run(options: &Options) -> Result<Report> {
    check(options)?;
    let mut session = Session::new(&options.gleaner, &options.bench)?;
    session.calibrate(&options.modes)?;
    let environment = environment::read(&Root::system())?;
    let meter = Meter::start(&Root::system())?;
    let plan = Plan {
        rows: options.rows.iter().map(|row| row.name.to_owned()).collect(),
        modes: options.modes.iter().map(Mode::to_string).collect(),
        rounds: options.rounds,
        warmup_rounds: 0,
        seed: options.seed,
    };
    let report = |row: usize, samples: &_| {
        let row = &options.rows[row];
        RowReport::new(row, options.window(row), &options.modes, samples)
    };
    let outcome = plan.run(
        |cell| {
            let (row, mode) = (&options.rows[cell.row], &options.modes[cell.mode]);
            let settled = session.settle(mode);
            let problem = |error: &ServersError, ends_run: bool| {
                let message = session.portable(&error.to_string());
                Problem { message, ends_run }
            };
            settled.map_err(|error| problem(&error, true))?;
            run_cell(options, row, mode, &session).map_err(|error| problem(&error, false))
        },
        |_, _| false,
        |row, samples| Some(report(row, samples).line()),
    );
    let (_, cpu) = meter.stop()?;
    let begun = |(_, row): &(usize, &RowSamples<_>)| row.samples.iter().flatten().any(Option::is_some);
    Ok(Report {
        repeat_with: options.repeat_with.clone(),
        environment,
        rounds: options.rounds,
        seed: options.seed,
        steal: cpu.steal,
        interrupted: outcome.interrupted,
        earlier: Vec::new(),
        rows: outcome
            .rows
            .iter()
            .enumerate()
            .filter(begun)
            .map(|(row, samples)| report(row, samples))
            .collect(),
        failures: outcome.failures,
    })
}

/// Checks the requirements up front rather than after the first rows.
fn check(options: &Options) -> Result<()> {
    check_programs(&options.rows)?;
    if options.modes.iter().any(|mode| *mode != Mode::Default) {
        fs::metadata(&options.gleaner).map_err(ServersError::file("find", &options.gleaner))?;
    }
    Ok(())
}

/// Prepares the row's data outside of the mode, then measures it in its own process.
fn run_cell(options: &Options, row: &Row, mode: &Mode, session: &Session) -> Result<Measured> {
    prepare(row, session.state())?;
    let wrapper = mode.wrapper(&options.gleaner, &[]);
    let mut measured = measure_apart(&options.bench, row, options.window(row), &wrapper, session.state())?;
    if row.placement == Placement::Inside && !wrapper.is_empty() {
        let words: Vec<_> = wrapper.iter().map(|w| w.to_string_lossy()).collect();
        for command in &mut measured.commands {
            *command = format!("[inside `{} …`] {command}", words.join(" "));
        }
    }
    for command in &mut measured.commands {
        *command = session.portable(command);
    }
    Ok(measured)
}

impl Options {
    fn window(&self, row: &Row) -> Window {
        row.window(self.warmup, self.length)
    }
}
