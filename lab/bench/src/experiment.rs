//! Experiments: any commands in any modes, interleaved. The result contains everything that is needed to
//! judge it.
//!
//! [`run`] drives the interleaved [`runner`](crate::runner) and returns a [`BenchResult`]. A sample is one
//! run of a command (`sample`): the mode is applied, the kernel's counters are read before and after the
//! command ([`sensors`](crate::sensors)), and metrics are extracted from the command's output (`output`) and
//! settings from Gleaner's journal (`control`). Summaries, comparisons and warnings are computed from the
//! samples (`summary`). What the samples of a run share is a `Session`.

mod co_runner;
mod control;
mod correlation;
mod frequency;
mod markdown;
mod output;
pub mod overhead;
mod program;
mod reset;
mod sample;
mod session;
mod summary;
mod table;
mod user;
mod warnings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gleaner_kernel::Root;
use gleaner_proto::result::{self, BenchResult, Ending, Metric, ModeInfo, SCHEMA};

pub(crate) use control::not_in_force;
pub use correlation::slowdown_by_idling;
pub use markdown::markdown;
pub(crate) use output::workload_outcome;
pub use output::{Expression, ExpressionError, NoMatch};
pub use program::Program;
pub(crate) use session::Session;
pub use table::table;

use crate::adapters::{AdapterError, Expanded};
use crate::environment::{self, SettingError};
use crate::mode::Mode;
use crate::runner::{Cell, Outcome, Plan, Problem, interrupted};
use crate::servers::ServersError;
use frequency::Frequencies;
use sample::{Measured, Sampler};
use summary::Summary;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Title in reports.
    pub title: String,
    /// The paper and figure that it reproduces; empty for a user's own.
    pub source: String,
    /// The modes to compare; the first one is the baseline. Not empty.
    pub modes: Vec<Mode>,
    /// The rows. Not empty, with unique names.
    pub rows: Vec<Row>,
    /// How often to measure.
    pub rounds: Rounds,
    /// Rounds to discard before the measured ones.
    pub warmup_rounds: usize,
    /// How long a built-in workload runs unless its row overrides it.
    pub window: Duration,
    /// Seed of the order of modes within each round.
    pub seed: u64,
}

/// How often each mode of a row is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rounds {
    /// Minimum number of rounds.
    pub least: usize,
    /// Maximum number of rounds; equal to `least` without a precision.
    pub most: usize,
    /// Stop once every mode's interval of the primary metric is narrower than this share of its median.
    pub precision: Option<f64>,
}

/// A command or workload to measure in every mode.
#[derive(Debug, Clone)]
pub struct Row {
    /// Name in reports.
    pub name: String,
    /// The program to run.
    pub program: Program,
    /// Unit of its throughput; empty if it has none.
    pub unit: String,
    /// The metric that the tables show and the verdicts judge.
    pub primary: Metric,
    /// Extract metrics from its output.
    pub expressions: Vec<Expression>,
    /// Programs that run beside it, outside of the mode, like the papers' second virtual machine.
    pub co_runners: Vec<Program>,
    /// A shell command to run once before the first sample.
    pub prepare: Option<String>,
    /// The paper's values of the primary metric, by mode.
    pub paper: BTreeMap<String, f64>,
    /// The paper's ratios to the first mode, by mode.
    pub paper_ratio: BTreeMap<String, f64>,
    /// Timeout of a sample.
    pub timeout: Duration,
    /// The adapter that the program comes from, if any.
    pub adapter: Option<Expanded>,
}

/// How to run an [`Experiment`].
#[derive(Debug, Clone)]
pub struct Options {
    /// The `gleaner` binary, which runs the modes and the built-in workloads.
    pub gleaner: PathBuf,
    /// The `gleaner-bench` binary, which measures servers.
    pub bench: PathBuf,
    /// The command line that repeats the run, for the result.
    pub repeat_with: String,
    /// Suppresses the line per finished row.
    pub quiet: bool,
    /// Whether a failed sample is in the result and the run goes on.
    pub keep_going: bool,
}

/// Why an experiment could not be run, or a sample not be taken.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// A program did not start, failed or timed out, or a kernel setting has changed.
    #[error(transparent)]
    Run(#[from] ServersError),
    /// A kernel file could not be read.
    #[error(transparent)]
    Kernel(#[from] gleaner_kernel::KernelError),
    /// A program that an adapter needs is not installed.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// A regular expression did not match.
    #[error(transparent)]
    NoMatch(#[from] NoMatch),
    /// Gleaner did not control the command although the mode requires it.
    #[error("{why}: {log}")]
    NotControlled {
        /// The reason.
        why: String,
        /// The end of the output.
        log: String,
    },
    /// A co-runner ended before the command.
    #[error("the co-runner `{line}` ended with {status} before the command did; give it more to do")]
    CoRunnerEnded {
        /// Command line of the co-runner.
        line: String,
        /// Its exit status.
        status: String,
    },
    /// A set or unset command of a user-defined mode failed.
    #[error("the mode's command `{line}` ended with {status}: {said}")]
    UserCommand {
        /// The failed command.
        line: String,
        /// Its exit status.
        status: String,
        /// The end of its error output.
        said: String,
    },
}

impl ExperimentError {
    /// Whether another process changes the kernel's settings, so that later samples would be wrong, too.
    pub(crate) fn is_of_the_machine(&self) -> bool {
        matches!(self, Self::Run(ServersError::Setting(SettingError::Touched { .. })))
    }
}

/// Runs `experiment`. After a signal (see [`crate::runner::watch`]) or a failed command, the result contains
/// the samples so far, and [`BenchResult::ending`] gives the reason.
///
/// # Errors
/// If nothing can be measured at all. A failed sample is not an error: it ends the run and is in the result.
pub fn run(experiment: &Experiment, options: &Options) -> Result<BenchResult, ExperimentError> {
    experiment.rows.iter().filter_map(|row| row.adapter.as_ref()).try_for_each(Expanded::check)?;
    let environment = environment::read(&Root::system())?;
    let mut sampler = Sampler::new(&options.gleaner, &options.bench)?;
    sampler.calibrate(&experiment.modes)?;
    let mut warnings = sampler.sensors().missing();
    let mut frequencies = Frequencies::default();
    let lines = |row: &Row| row.co_runners.iter().map(|program| sampler.line(program)).collect();
    let co_runners = experiment.rows.iter().map(lines).collect();
    let summary = Summary { experiment, co_runners, began: Instant::now() };
    let plan = experiment.plan();
    let outcome = plan.run(
        |cell| {
            if cell.position == 0 {
                frequencies.sample(&Root::system());
            }
            let (row, mode) = (&experiment.rows[cell.row], &experiment.modes[cell.mode]);
            let measured = sampler.measure(row, mode);
            let measured = measured.map_err(|error| Problem {
                message: sampler.portable(&error.to_string()),
                // A failed command is likely to fail again: do not make the user wait for it.
                ends_run: !options.keep_going || error.is_of_the_machine(),
            })?;
            Ok(TakenSample { cell, measured })
        },
        |row, samples| experiment.is_enough(&summary.row(row, samples)),
        |row, samples| (!options.quiet).then(|| table::line(&summary.row(row, samples))),
    );
    let rows = summary.rows(&outcome.rows);
    warnings.extend(frequencies.warning());
    warnings.extend(summary::not_in_force(experiment, &outcome.rows));
    warnings.extend(summary::warnings(&rows, environment.vcpus, experiment.rounds));
    Ok(BenchResult {
        schema: SCHEMA,
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        repeat_with: options.repeat_with.clone(),
        environment,
        plan: experiment.plan_info(),
        modes: experiment.modes.iter().map(mode_info).collect(),
        rows,
        warnings,
        ending: ending(&outcome),
        failures: if options.keep_going { outcome.failures } else { Vec::new() },
        earlier: Vec::new(),
    })
}

/// A sample and its position in the plan.
#[derive(Debug, Clone)]
struct TakenSample {
    cell: Cell,
    measured: Measured,
}

impl Experiment {
    fn plan(&self) -> Plan {
        Plan {
            rows: self.rows.iter().map(|row| row.name.clone()).collect(),
            modes: self.modes.iter().map(Mode::to_string).collect(),
            rounds: self.rounds.most,
            warmup_rounds: self.warmup_rounds,
            seed: self.seed,
        }
    }

    fn plan_info(&self) -> gleaner_proto::result::Plan {
        let Rounds { least, most, precision } = self.rounds;
        gleaner_proto::result::Plan {
            rounds: least,
            max_rounds: precision.map(|_| most),
            precision,
            warmup_rounds: self.warmup_rounds,
            window_s: self.window.as_secs_f64(),
            seed: self.seed,
            order: "row by row; each round measures every mode once, in random order".to_owned(),
        }
    }

    fn is_enough(&self, row: &result::Row) -> bool {
        let Some(precision) = self.rounds.precision else { return false };
        row.cells.iter().all(|cell| {
            let values = cell.values(row.primary);
            values.len() >= self.rounds.least
                && summary::width(&values).is_some_and(|width| width <= precision)
        })
    }
}

fn mode_info(mode: &Mode) -> ModeInfo {
    let user = mode.user().cloned().unwrap_or_default();
    ModeInfo { name: mode.to_string(), about: mode.about(), set: user.set, unset: user.unset }
}

fn ending(outcome: &Outcome<TakenSample>) -> Ending {
    match outcome.failures.last() {
        _ if interrupted() => Ending::Interrupted,
        Some(failure) if outcome.interrupted => Ending::Failed {
            row: failure.row.clone(),
            mode: failure.mode.clone(),
            round: failure.round,
            message: failure.message.clone(),
        },
        None if outcome.interrupted => Ending::Interrupted,
        _ => Ending::Complete,
    }
}
