//! An experiment without a scenario file: one workload or command, from the command line.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_bench::experiment::{Experiment, Program, Rounds, Row};
use gleaner_bench::mode::Mode;
use gleaner_bench::stats::FULL_ROUNDS;
use gleaner_bench::workload::{Amount, ParameterError};
use gleaner_proto::result::Metric;

use crate::run::Args;

/// How long the workload runs in each sample.
const WINDOW: Duration = Duration::from_secs(1);
/// Time limit of one sample.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// The experiment that the command line describes. `args` must name a workload or a command.
///
/// # Errors
/// The workload has no such parameter, or a value is out of range.
pub(crate) fn experiment(args: &Args) -> Result<Experiment, ParameterError> {
    let window = args.window.unwrap_or(WINDOW);
    let program = match args.workload {
        Some(workload) => {
            Program::of_workload(workload, args.parameters.iter().cloned().collect(), Amount::Time(window))?
        }
        None => Program::Command(args.command.clone()),
    };
    let says = |metric| args.metrics.iter().any(|expression| expression.metrics().any(|m| m == metric));
    let is_workload = args.workload.is_some();
    let primary = if is_workload || says(Metric::Throughput) { Metric::Throughput } else { Metric::WallS };
    let modes = if args.modes.is_empty() { vec![Mode::Default, Mode::Gleaner] } else { args.modes.clone() };
    let rounds = args.rounds.map_or(FULL_ROUNDS, usize::from);
    let row = Row {
        name: program.name(),
        program,
        unit: if is_workload { "operations".to_owned() } else { String::new() },
        primary,
        expressions: args.metrics.clone(),
        co_runners: Vec::new(),
        prepare: None,
        paper: BTreeMap::new(),
        paper_ratio: BTreeMap::new(),
        adapter: None,
        timeout: TIMEOUT,
    };
    Ok(Experiment {
        title: row.name.clone(),
        source: String::new(),
        modes,
        rows: vec![row],
        rounds: Rounds { least: rounds, most: rounds, precision: None },
        warmup_rounds: 0,
        window,
        seed: 1,
    })
}
