//! An experiment: any commands in any modes, interleaved, with everything in the result that is needed to judge it.
//!
//! [`run`] drives the interleaved [`runner`](crate::runner) and returns a [`BenchResult`]. One sample is one run of a
//! command (`sample`): the mode is put in force, the kernel's counters are read, the command runs, they are read again
//! (`sensors`), its output is searched for what it says about itself (`output`) and Gleaner's journal for what was in
//! force (`control`). Summaries, comparisons and warnings follow from the samples (`summary`).

mod co_runner;
mod control;
mod correlation;
mod environment;
mod mode;
mod output;
pub mod overhead;
mod program;
mod reset;
mod sample;
mod sensors;
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
pub use environment::read as environment;
pub use mode::{Mode, ModeError, UserMode};
pub(crate) use output::workload_outcome;
pub use output::{Expression, ExpressionError, NoMatch};
pub use program::Program;
pub(crate) use program::portable;
pub(crate) use reset::reset_polling;
pub use table::table;

use crate::adapters::{AdapterError, Expanded};
use crate::runner::{Cell, Outcome, Plan, Problem, interrupted};
use crate::servers;
use environment::Frequencies;
use sample::{Measured, Sampler};
use summary::Summary;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// What it is, for people.
    pub title: String,
    /// Where it comes from; empty for one of the user's own.
    pub source: String,
    /// The modes that are compared; the first one is the baseline. Not empty.
    pub modes: Vec<Mode>,
    /// What is run. Not empty, no name twice.
    pub rows: Vec<Row>,
    /// How often.
    pub rounds: Rounds,
    /// Rounds before them whose samples are thrown away.
    pub warmup_rounds: usize,
    /// How long a built-in workload runs unless its row says otherwise.
    pub window: Duration,
    /// Decides the order of the modes within each round.
    pub seed: u64,
}

/// How often each mode of a row is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rounds {
    /// At least so often.
    pub least: usize,
    /// At most so often; the same as `least` without a precision.
    pub most: usize,
    /// Enough when every mode's interval of the primary metric is narrower than this share of its median.
    pub precision: Option<f64>,
}

/// One command or workload that is measured in every mode.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What is run.
    pub program: Program,
    /// What its throughput counts; empty where it has none.
    pub unit: String,
    /// The metric that the tables show and the verdicts judge.
    pub primary: Metric,
    /// Find metrics in its output.
    pub expressions: Vec<Expression>,
    /// What runs beside it, outside of the mode: the second virtual machine of the papers.
    pub co_runners: Vec<Program>,
    /// A shell command that is run once before the first sample.
    pub prepare: Option<String>,
    /// The paper's values of the primary metric, by mode.
    pub paper: BTreeMap<String, f64>,
    /// The paper's ratios to the first mode, by mode.
    pub paper_ratio: BTreeMap<String, f64>,
    /// How long one sample may take.
    pub timeout: Duration,
    /// The adapter that the program is from, where it is from one.
    pub adapter: Option<Expanded>,
}

/// How to run an [`Experiment`].
#[derive(Debug, Clone)]
pub struct Options {
    /// The product's binary: it runs the modes and the built-in workloads.
    pub gleaner: PathBuf,
    /// The command line that repeats the run, for the result.
    pub repeat_with: String,
    /// Prints no line for a finished row.
    pub quiet: bool,
}

/// Why an experiment could not be run, or one of its samples not be taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program did not start, failed or took too long; a kernel setting is not as it was.
    #[error(transparent)]
    Run(#[from] servers::Error),
    /// A kernel file could not be read.
    #[error(transparent)]
    Kernel(#[from] gleaner_kernel::KernelError),
    /// A program of an adapter is not on this machine.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// A regular expression found nothing.
    #[error(transparent)]
    NoMatch(#[from] NoMatch),
    /// The command ran without Gleaner's control although the mode asks for it.
    #[error("{why}: {log}")]
    NotControlled {
        /// Why.
        why: String,
        /// The end of the output.
        log: String,
    },
    /// A co-runner ended before the command did.
    #[error("the co-runner `{line}` ended with {status} before the command did; give it more to do")]
    CoRunnerEnded {
        /// Its command line.
        line: String,
        /// How it ended.
        status: String,
    },
    /// A set or unset command of the user's own mode failed.
    #[error("the mode's command `{line}` ended with {status}: {said}")]
    UserCommand {
        /// The command.
        line: String,
        /// How it ended.
        status: String,
        /// The end of its error output.
        said: String,
    },
}

/// Runs `experiment`. After a signal (see [`crate::runner::watch`]) or a failed command the result holds what there
/// was until then, and [`BenchResult::ending`] says so.
///
/// # Errors
/// Where nothing can be measured at all. A sample that fails is no error: it ends the run and is in the result.
pub fn run(experiment: &Experiment, options: &Options) -> Result<BenchResult, Error> {
    experiment.rows.iter().filter_map(|row| row.adapter.as_ref()).try_for_each(Expanded::check)?;
    let environment = environment::read(&Root::system())?;
    let mut sampler = Sampler::new(&options.gleaner)?;
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
                frequencies.look(&Root::system());
            }
            let (row, mode) = (&experiment.rows[cell.row], &experiment.modes[cell.mode]);
            let measured = sampler.measure(row, mode);
            // What failed once fails again: the user should not wait for it.
            let measured =
                measured.map_err(|error| Problem { message: error.to_string(), ends_run: true })?;
            Ok(Taken { cell, measured })
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
    })
}

/// A sample and its place in the plan.
#[derive(Debug, Clone)]
struct Taken {
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
            order: "row by row; each round measures every mode once, in an order drawn by lot".to_owned(),
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

fn ending(outcome: &Outcome<Taken>) -> Ending {
    match outcome.failures.first() {
        _ if interrupted() => Ending::Interrupted,
        Some(failure) => Ending::Failed {
            row: failure.row.clone(),
            mode: failure.mode.clone(),
            round: failure.round,
            message: failure.message.clone(),
        },
        None if outcome.interrupted => Ending::Interrupted,
        None => Ending::Complete,
    }
}
