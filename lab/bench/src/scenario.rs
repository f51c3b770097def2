//! Scenario files: [`Experiment`]s in TOML, one per reproduced table or figure.
//!
//! Errors give the line and the nearest existing name. `docs/bench.md` describes the format. The scenarios in
//! `lab/bench/scenarios` are part of the program ([`BUILT_IN`]).

mod adapter;
mod built_in;
mod error;
mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use gleaner_proto::result::Metric;
use gleaner_proto::source_text::{SourceText, nearest, unknown};
use toml::Spanned;

pub use built_in::BUILT_IN;
pub use error::ScenarioError;

use crate::experiment::{Experiment, Expression, ExpressionError, Program, Rounds, Row};
use crate::mode::{Mode, UserMode};
use crate::stats::FULL_ROUNDS;
use crate::workload::{Amount, Workload};
use error::At as _;
use file::{File, ProgramFile, RowFile};

/// Default number of rounds without a precision: the fewest with a true 95 % interval.
const DEFAULT_ROUNDS: usize = FULL_ROUNDS;
/// Default maximum number of rounds with a precision.
const MAX_ROUNDS: usize = 30;
/// Default duration of a workload, in seconds.
const WINDOW_S: f64 = 1.0;
/// Default timeout of a sample, in seconds.
const TIMEOUT_S: f64 = 600.0;
/// How long a co-runner would run if it were not stopped.
const CO_RUNNER_TIME: Duration = Duration::from_secs(3600);

/// Reads a scenario: `name` is a path, or the name of one in [`BUILT_IN`].
///
/// # Errors
/// See [`ScenarioError`].
pub fn load(name: &str) -> Result<Experiment, ScenarioError> {
    let path = Path::new(name);
    if !path.exists()
        && let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name)
    {
        return parse(text, name);
    }
    match fs::read_to_string(path) {
        Ok(text) => parse(&text, name),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound && !name.contains(['/', '.']) => {
            Err(ScenarioError::NoSuch {
                name: name.to_owned(),
                nearest: nearest(name, BUILT_IN.iter().map(|(known, _)| *known)).map(str::to_owned),
            })
        }
        Err(source) => Err(ScenarioError::Read { path: path.to_owned(), source }),
    }
}

/// Parses the `text` of the scenario file `name`.
///
/// # Errors
/// [`ScenarioError::Syntax`], [`ScenarioError::Unknown`] and [`ScenarioError::Invalid`].
pub fn parse(text: &str, name: &str) -> Result<Experiment, ScenarioError> {
    let text = SourceText { name, text };
    let file: File = toml::from_str(text.text).map_err(|error| text.syntax(&error))?;
    let window = seconds(&text, file.window_s.as_ref(), WINDOW_S)?;
    let modes = file.modes.iter().map(|mode| mode_of(&text, mode, &file.user));
    let modes: Vec<Mode> = modes.collect::<Result<_, _>>()?;
    if modes.is_empty() {
        return Err(text.invalid(0, "`modes` names no mode"));
    }
    for (index, mode) in modes.iter().enumerate() {
        if modes[..index].contains(mode) {
            let message = format!(
                "mode `{mode}` is there twice; `user:NAME` with empty `set` and `unset` can be the second"
            );
            return Err(text.invalid(file.modes[index].span().start, &message));
        }
    }
    let mut names = BTreeSet::new();
    let mut rows = Vec::new();
    for spanned in &file.row {
        let row = row_of(&text, spanned, window, &modes)?;
        if !names.insert(row.name.clone()) {
            let start = spanned.span().start;
            return Err(text.invalid(start, &format!("two rows are named `{}`", row.name)));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Err(text.invalid(0, "there is no [[row]]"));
    }
    Ok(Experiment {
        title: file.title,
        source: file.source.unwrap_or_default(),
        modes,
        rows,
        rounds: rounds(&text, file.rounds.as_ref(), file.max_rounds.as_ref(), file.precision.as_ref())?,
        warmup_rounds: file.warmup_rounds,
        window,
        seed: file.seed,
    })
}

/// The workload called `name`, or a sentence with the nearest name.
fn workload(name: &str) -> Result<Workload, String> {
    let known = Workload::ALL.map(Workload::name);
    name.parse().map_err(|_| unknown("workload", name, known.into_iter()))
}

fn mode_of(
    text: &SourceText<'_>,
    name: &Spanned<String>,
    user: &BTreeMap<String, UserMode>,
) -> Result<Mode, ScenarioError> {
    let mode = Mode::parse(name.get_ref(), user);
    mode.map_err(|error| text.unknown(name.span().start, error.to_string()))
}

fn row_of(
    text: &SourceText<'_>,
    row: &Spanned<RowFile>,
    window: Duration,
    modes: &[Mode],
) -> Result<Row, ScenarioError> {
    let (start, row) = (row.span().start, row.get_ref());
    let window = match &row.window_s {
        Some(own) => seconds(text, Some(own), WINDOW_S)?,
        None => window,
    };
    let amount = row.operations.map_or(Amount::Time(window), Amount::Operations);
    let adapted = adapter::of(text, start, row)?;
    let program = match &adapted {
        Some(adapted) => Program::shell(&adapted.expanded.command),
        None => program_of(text, start, &row.program(), amount)?,
    };
    let own = row.metrics.iter().map(|own| expression(text, own.span().start, own.get_ref()));
    let mut expressions: Vec<Expression> = own.collect::<Result<_, _>>()?;
    expressions.extend(adapted.iter().flat_map(|adapted| adapted.expressions.clone()));
    let co_runners = row.co_runners.iter().map(|co_runner| {
        program_of(text, co_runner.span().start, co_runner.get_ref(), Amount::Time(CO_RUNNER_TIME))
    });
    let says = |metric| expressions.iter().any(|e| e.metrics().any(|m| m == metric));
    let has_throughput = says(Metric::Throughput) || program.workload().is_some();
    let primary = match &row.primary {
        Some(name) => metric_of(text, name)?,
        None if has_throughput && row.operations.is_none() => Metric::Throughput,
        None => Metric::WallS,
    };
    for mode in row.paper.keys().chain(row.paper_ratio.keys()) {
        if !modes.iter().any(|known| known.name() == mode.get_ref()) {
            let message = unknown("mode of this scenario", mode.get_ref(), modes.iter().map(Mode::name));
            return Err(text.unknown(mode.span().start, message));
        }
    }
    Ok(Row {
        name: row.name.clone().unwrap_or_else(|| match &adapted {
            Some(adapted) => adapted.adapter.name.to_owned(),
            None => program.name(),
        }),
        unit: row.unit.clone().unwrap_or_else(|| match &adapted {
            Some(adapted) => adapted.adapter.unit.to_owned(),
            None => unit(&program),
        }),
        primary,
        expressions,
        co_runners: co_runners.collect::<Result<_, _>>()?,
        prepare: match &adapted {
            Some(adapted) => adapted.expanded.prepare.clone(),
            None => row.prepare.clone(),
        },
        paper: by_mode(&row.paper),
        paper_ratio: by_mode(&row.paper_ratio),
        timeout: seconds(text, row.timeout_s.as_ref(), TIMEOUT_S)?,
        program,
        adapter: adapted.map(|adapted| adapted.expanded),
    })
}

fn by_mode(values: &BTreeMap<Spanned<String>, f64>) -> BTreeMap<String, f64> {
    values.iter().map(|(mode, value)| (mode.get_ref().clone(), *value)).collect()
}

fn unit(program: &Program) -> String {
    if program.workload().is_some() { "operations".to_owned() } else { String::new() }
}

fn program_of(
    text: &SourceText<'_>,
    start: usize,
    program: &ProgramFile,
    amount: Amount,
) -> Result<Program, ScenarioError> {
    let ProgramFile { workload: name, command, shell, parameters } = program;
    let program = match (name, command.as_slice(), shell) {
        (Some(name), [], None) => {
            let workload =
                workload(name.get_ref()).map_err(|message| text.unknown(name.span().start, message))?;
            return Program::of_workload(workload, words(parameters), amount)
                .map_err(|error| text.invalid(start, &error.to_string()));
        }
        (None, [_, ..], None) => Program::Command(command.iter().map(Into::into).collect()),
        (None, [], Some(line)) => Program::shell(line),
        _ => {
            let message = "exactly one of `workload`, `command`, `shell`, `adapter` says what is run";
            return Err(text.invalid(start, message));
        }
    };
    if parameters.is_empty() {
        return Ok(program);
    }
    Err(text.invalid(start, "`parameters` are those of a workload; a command has them in its words"))
}

/// Parameters in the form that a workload's command line has.
fn words(parameters: &toml::Table) -> BTreeMap<String, String> {
    let word = |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    parameters.iter().map(|(name, value)| (name.clone(), word(value))).collect()
}

fn expression(text: &SourceText<'_>, start: usize, expression: &str) -> Result<Expression, ScenarioError> {
    Expression::new(expression).map_err(|error| match &error {
        ExpressionError::UnknownMetric(name) => {
            text.unknown(start, unknown("metric", name, Metric::ALL.iter().map(|m| m.name())))
        }
        _ => text.invalid(start, &error.to_string()),
    })
}

fn metric_of(text: &SourceText<'_>, name: &Spanned<String>) -> Result<Metric, ScenarioError> {
    let known = Metric::ALL.iter().map(|metric| metric.name());
    name.get_ref()
        .parse()
        .map_err(|_| text.unknown(name.span().start, unknown("metric", name.get_ref(), known)))
}

fn rounds(
    text: &SourceText<'_>,
    rounds: Option<&Spanned<usize>>,
    most: Option<&Spanned<usize>>,
    precision: Option<&Spanned<f64>>,
) -> Result<Rounds, ScenarioError> {
    for number in [rounds, most].into_iter().flatten() {
        if *number.get_ref() == 0 {
            return Err(text.invalid(number.span().start, "at least one round is needed"));
        }
    }
    let least = rounds.map_or(DEFAULT_ROUNDS, |rounds| *rounds.get_ref());
    match (precision, most) {
        (None, None) => Ok(Rounds { least, most: least, precision: None }),
        (None, Some(most)) => {
            Err(text.invalid(most.span().start, "`max_rounds` means something only with a `precision`"))
        }
        (Some(precision), most) => {
            let value = *precision.get_ref();
            if !(value > 0.0 && value < 1.0) {
                let start = precision.span().start;
                return Err(text.invalid(start, "`precision` is a share of the median, between 0 and 1"));
            }
            let most = most.map_or(MAX_ROUNDS, |most| *most.get_ref()).max(least);
            Ok(Rounds { least, most, precision: Some(value) })
        }
    }
}

/// A time from 10 ms to a day.
fn seconds(
    text: &SourceText<'_>,
    given: Option<&Spanned<f64>>,
    default: f64,
) -> Result<Duration, ScenarioError> {
    let value = given.map_or(default, |given| *given.get_ref());
    if (0.01..=86_400.0).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    let start = given.map_or(0, |given| given.span().start);
    Err(text.invalid(start, &format!("{value} is not a time between 0.01 and 86400 seconds")))
}

#[cfg(test)]
mod tests;
