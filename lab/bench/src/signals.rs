//! Are Gleaner's progress signals right? Compares them with what programs report themselves.
//!
//! A *case* is a program with a load ([`find`]): a built-in workload, a server in a closed or open loop, or a
//! program of an adapter. It runs in interleaved rounds under `gleaner run --fixed`: untouched (`halt`) and
//! under other settings. The program reports its own rate; the journal contains what Gleaner observed in the
//! same time. [`Pair`] judges each signal with the policy's own functions, [`Report::accounts`] counts.
//! `docs/signals.md` has the table of a whole run.

use std::path::PathBuf;
use std::time::Instant;

use gleaner_kernel::Root;

use crate::environment;
use crate::experiment::ExperimentError;
use crate::runner::{Outcome, Plan, Problem, interrupted};
use crate::servers::ServersError;

mod case;
mod cell;
mod interval;
mod judge;
mod markdown;
mod report;
mod shares;
#[cfg(test)]
mod tests;

pub use case::{Case, CaseError, find};
pub use cell::Sample;
pub use interval::Interval;
pub use judge::{Ratio, Side, Truth, Verdict};
pub use report::{Pair, Report, SignalAccuracy, SignalFinding, UnmeasuredCase};

/// Seed of the order of settings.
const SEED: u64 = 1;

/// What to run, and with which programs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Cases to measure, in order.
    pub cases: Vec<Case>,
    /// Measurements of each setting per case.
    pub rounds: usize,
    /// The `gleaner` binary.
    pub gleaner: PathBuf,
    /// The `gleaner-bench` binary, which measures servers.
    pub bench: PathBuf,
    /// The command line that repeats this run, for the report.
    pub repeat_with: String,
}

/// Measures all cases that can be measured here. After a signal (see [`crate::runner::watch`]), the report
/// contains the measurements so far.
///
/// # Errors
/// If the `gleaner` binary does not work, or nothing can be measured at all. A failed cell is not an error;
/// it is in the report.
pub fn run(options: &Options) -> Result<Report, ExperimentError> {
    std::fs::metadata(&options.gleaner).map_err(ServersError::file("find", &options.gleaner))?;
    let environment = environment::read(&Root::system())?;
    let began = Instant::now();
    let mut meter = cell::Meter::new(options)?;
    let mut report = Report {
        repeat_with: options.repeat_with.clone(),
        environment,
        rounds: options.rounds,
        elapsed_s: 0.0,
        interrupted: false,
        absent: Vec::new(),
        pairs: Vec::new(),
        failures: Vec::new(),
    };
    let mut cases = Vec::new();
    for case in &options.cases {
        match case.absent() {
            Some(why) => report.absent.push(UnmeasuredCase { case: case.name.clone(), why }),
            None => cases.push(case.clone()),
        }
    }
    for group in cases.chunk_by(|a, b| a.settings == b.settings) {
        if interrupted() || report.interrupted {
            break;
        }
        measure(group, options.rounds, &mut meter, &mut report);
    }
    report.interrupted |= interrupted();
    report.elapsed_s = began.elapsed().as_secs_f64();
    Ok(report)
}

/// Measures cases with the same settings.
fn measure(cases: &[Case], rounds: usize, meter: &mut cell::Meter, report: &mut Report) {
    let Some(settings) = cases.first().map(|case| case.settings) else { return };
    let plan = Plan {
        rows: cases.iter().map(|case| case.name.clone()).collect(),
        modes: settings.iter().map(|setting| (*setting).to_owned()).collect(),
        rounds,
        warmup_rounds: 0,
        seed: SEED,
    };
    let outcome: Outcome<Sample> = plan.run(
        |cell| {
            let measured = meter.measure(&cases[cell.row], settings[cell.mode]);
            measured.map_err(|error| Problem {
                message: meter.portable(&error.to_string()),
                ends_run: error.is_of_the_machine(),
            })
        },
        |_, _| false,
        |row, samples| {
            let pairs = pairs(&cases[row], &samples.samples);
            let pairs: Vec<_> =
                pairs.iter().map(|p| format!("{} {:.2}", p.setting, p.progress.ratio.median)).collect();
            Some(format!("{}: {}", cases[row].name, pairs.join(", ")))
        },
    );
    for (case, row) in cases.iter().zip(&outcome.rows) {
        report.pairs.extend(pairs(case, &row.samples));
    }
    report.failures.extend(outcome.failures);
    report.interrupted |= outcome.interrupted;
}

/// Judges a case; `samples[setting][round]`.
fn pairs(case: &Case, samples: &[Vec<Option<Sample>>]) -> Vec<Pair> {
    let Some((untouched, others)) = samples.split_first() else { return Vec::new() };
    let of_setting = |(setting, samples): (&&str, &Vec<Option<Sample>>)| {
        let both = untouched.iter().zip(samples).filter_map(|(b, c)| b.clone().zip(c.clone()));
        Pair::new(case, setting, both.collect())
    };
    case.settings.iter().skip(1).zip(others).filter_map(of_setting).collect()
}
