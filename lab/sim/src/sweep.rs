//! Sweeps: one scenario run with every combination of some values in its text.

mod edit;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use gleaner_engine::Journal;
use gleaner_proto::source_text::SourceText;
use serde::Serialize;

use crate::ids::Ns;
use crate::parallel;
use crate::scenario::{Scenario, ScenarioError};
use crate::world::{Category, Report, TaskTotals, VmReport};

pub use table::table;

/// More combinations than this are a typo.
const MAX_POINTS: usize = 1_000_000;

/// A value of a key, as in the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// `4`
    Integer(i64),
    /// `0.5`
    Float(f64),
    /// `true`
    Bool(bool),
    /// `"halt"`
    Text(String),
}

/// Formats the value as TOML.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(n) => write!(f, "{n}"),
            Self::Float(x) => write!(f, "{x:?}"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Text(text) => write!(f, "{}", toml::Value::from(text.as_str())),
        }
    }
}

impl Value {
    /// As on a command line: text without quotation marks.
    fn plain(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// Anything that is not a number or a boolean is a string.
impl From<&str> for Value {
    fn from(text: &str) -> Self {
        let number = || text.parse().map(Self::Integer).or_else(|_| text.parse().map(Self::Float));
        let switch = || text.parse().map(Self::Bool);
        // `nan` and `inf` are not valid for any key.
        number()
            .ok()
            .filter(|v| !matches!(v, Self::Float(x) if !x.is_finite()))
            .or_else(|| switch().ok())
            .unwrap_or_else(|| Self::Text(text.to_owned()))
    }
}

/// A key of the scenario and its values: `vm.NAME.vcpus=4,8,16`, `seed=1..20`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    /// Path of the key: names of tables and their entries, joined by dots; `*` is every entry of a list. For an axis
    /// of cases, any name.
    pub key: String,
    /// The values to try, in order; of cases, their names.
    pub values: Vec<Value>,
    /// What each case sets, in the order of `values`; empty for a single key.
    #[serde(skip)]
    pub cases: Vec<Case>,
}

/// Keys and values that go together.
pub type Case = Vec<(String, Value)>;

impl FromStr for Axis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, values) = text
            .split_once('=')
            .filter(|(key, values)| !key.trim().is_empty() && !values.trim().is_empty())
            .ok_or_else(|| format!("`{text}` is not KEY=VALUE,VALUE,…, such as vm.a.vcpus=4,8,16"))?;
        Ok(Self { key: key.trim().to_owned(), values: values_in(values)?, cases: Vec::new() })
    }
}

impl Axis {
    /// The position of a value. A case may be called `16`, which a command line gives as a number.
    fn index(&self, value: &Value) -> Result<usize, String> {
        self.values.iter().position(|v| v.plain() == value.plain()).ok_or_else(|| {
            let known: Vec<String> = self.values.iter().map(ToString::to_string).collect();
            format!("`{}` has no {value}; it has {}", self.key, known.join(", "))
        })
    }

    /// The axis with these values instead; of cases, with those of these names.
    fn with(&self, values: Vec<Value>) -> Result<Self, String> {
        let cases = if self.cases.is_empty() {
            Vec::new()
        } else {
            let case = |value| Ok(self.cases[self.index(value)?].clone());
            values.iter().map(case).collect::<Result<_, String>>()?
        };
        Ok(Self { key: self.key.clone(), values, cases })
    }
}

/// Parses comma-separated values; `1..20` means all from 1 to 20.
fn values_in(text: &str) -> Result<Vec<Value>, String> {
    let mut values = Vec::new();
    for part in text.split(',').map(str::trim) {
        let ends = part.split_once("..").map(|(a, b)| (a.parse::<i64>(), b.parse::<i64>()));
        match ends {
            Some((Ok(first), Ok(last))) if first <= last && last.abs_diff(first) < MAX_POINTS as u64 => {
                values.extend((first..=last).map(Value::Integer));
            }
            Some((Ok(_), Ok(_))) => {
                return Err(format!("`{part}`: the first number is larger, or there are too many"));
            }
            _ => values.push(Value::from(part)),
        }
    }
    Ok(values)
}

/// A scenario and the values to vary.
#[derive(Debug, Clone)]
pub struct Sweep {
    name: String,
    text: String,
    axes: Vec<Axis>,
    /// What each value of each axis changes in the text.
    edits: Vec<Vec<Edits>>,
}

/// Ranges of the text and what replaces them.
type Edits = Vec<(Range<usize>, String)>;

/// Results of one program in one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Index of the combination, from 0.
    pub point: usize,
    /// Values of the combination, by axis.
    pub values: Vec<Value>,
    /// Name of the VM.
    pub vm: String,
    /// Name of the program.
    pub program: String,
    /// How the run ended.
    pub end: String,
    /// Simulated time, in ns.
    pub elapsed_ns: u64,
    /// Totals of the program.
    #[serde(flatten)]
    pub totals: TaskTotals,
    /// Operations per second, until the program ended.
    pub operations_per_s: f64,
    /// Mean latency from a waker's call until the wakee runs, in microseconds.
    pub wake_us: f64,
    /// Idle periods of the VM that ended in a halt, per second and vCPU.
    pub halts_per_s: f64,
    /// Number of reschedule interrupts in the VM.
    pub interrupts: u64,
    /// Preemptions of its vCPUs while they held a wait queue's spinlock.
    pub lock_holders_preempted: u64,
    /// Its pause-loop exits.
    pub pause_exits: u64,
    /// Share of its time spent spinning for such spinlocks.
    pub lock_spin: f64,
    /// The same for TLB acknowledgements.
    pub tlb_spin: f64,
    /// CPU time that the host spent on the VM, polling included, in ns.
    pub host_cpu_ns: u64,
    /// Shares of the VM's time by vCPU activity: see [`SHARES`].
    pub shares: [f64; SHARES.len()],
}

/// Names of the shares in a row, and the categories in each. They add up to 1.
pub const SHARES: [(&str, &[Category]); 7] = [
    ("user", &[Category::User]),
    ("kernel", &[Category::Kernel, Category::Irq, Category::Switch, Category::IdleEnter]),
    ("spinning", &[Category::UserSpin, Category::LockSpin, Category::TlbSpin]),
    ("retained", &[Category::Poll, Category::Yield]),
    ("halted", &[Category::Halted, Category::HostPoll]),
    ("waking", &[Category::Waking]),
    ("steal", &[Category::Steal]),
];

impl Sweep {
    /// Reads a scenario file, with the axes of its `[sweep]` and these, which replace those of the same key.
    ///
    /// # Errors
    /// The file cannot be read or is invalid, a key is not in it, or there is nothing to vary.
    pub fn read(path: &Path, more: Vec<Axis>) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        Self::parse(&path.display().to_string(), text, more)
    }

    /// The same for a `text` that is called `name` in errors.
    ///
    /// # Errors
    /// As [`Sweep::read`].
    pub fn parse(name: &str, text: String, more: Vec<Axis>) -> Result<Self, ScenarioError> {
        Self::keeping(name, text, more, |_| true)
    }

    /// The same without the axes of the `[sweep]` that `axes` does not name: the scenario's own values hold there.
    ///
    /// # Errors
    /// As [`Sweep::read`].
    pub fn only(name: &str, text: String, axes: Vec<Axis>) -> Result<Self, ScenarioError> {
        let named: Vec<String> = axes.iter().map(|axis| axis.key.clone()).collect();
        Self::keeping(name, text, axes, |axis| named.contains(&axis.key))
    }

    fn keeping(
        name: &str,
        text: String,
        more: Vec<Axis>,
        keep: impl Fn(&Axis) -> bool,
    ) -> Result<Self, ScenarioError> {
        let written = SourceText { name, text: &text };
        // Report errors in the scenario itself first.
        Scenario::parse(name, &text)?;
        let tree = edit::Tree::parse(&written)?;
        let mut axes = tree.axes()?;
        axes.retain(keep);
        let wrong = |message: String| ScenarioError::Sweep { file: name.to_owned(), message };
        for axis in more {
            match axes.iter_mut().find(|a| a.key == axis.key) {
                Some(there) => *there = there.with(axis.values).map_err(wrong)?,
                None => axes.push(axis),
            }
        }
        let points = axes.iter().try_fold(1, |n: usize, axis| n.checked_mul(axis.values.len()));
        if axes.is_empty() {
            let remedy = "add a table [sweep] with keys and lists of values, or --set KEY=VALUE,VALUE";
            return Err(wrong(format!("there is nothing to vary: {remedy}")));
        }
        if points.is_none_or(|n| n == 0 || n > MAX_POINTS) {
            return Err(wrong(format!("between 1 and {MAX_POINTS} combinations are possible")));
        }
        let edits = axes.iter().map(|axis| tree.edits(axis)).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), text, axes, edits })
    }

    /// The axes, in the order in which they vary: the last one fastest.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Number of combinations.
    pub fn points(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// The index of each axis' value in a combination.
    fn indices(&self, point: usize) -> Vec<usize> {
        let mut rest = point;
        let digits = self.axes.iter().rev().map(|axis| {
            let index = rest % axis.values.len();
            rest /= axis.values.len();
            index
        });
        let mut indices: Vec<usize> = digits.collect();
        indices.reverse();
        indices
    }

    /// The values of a combination, by axis.
    pub fn values(&self, point: usize) -> Vec<Value> {
        self.axes.iter().zip(self.indices(point)).map(|(axis, index)| axis.values[index].clone()).collect()
    }

    /// The combination with these values of some axes, and the first value of the others.
    ///
    /// # Errors
    /// There is no such axis, or it does not have the value.
    pub fn point(&self, chosen: &[(&str, Value)]) -> Result<usize, ScenarioError> {
        let wrong = |message: String| ScenarioError::Sweep { file: self.name.clone(), message };
        if let Some((key, _)) = chosen.iter().find(|(key, _)| self.axes.iter().all(|a| a.key != *key)) {
            let known: Vec<&str> = self.axes.iter().map(|a| a.key.as_str()).collect();
            return Err(wrong(format!("the sweep has no `{key}`; it has {}", known.join(", "))));
        }
        self.axes.iter().try_fold(0, |point, axis| {
            let chosen = chosen.iter().find(|(key, _)| *key == axis.key);
            let index = match chosen {
                None => 0,
                Some((_, value)) => axis.index(value).map_err(wrong)?,
            };
            Ok(point * axis.values.len() + index)
        })
    }

    /// The scenario of a combination.
    ///
    /// # Errors
    /// A value is not valid there.
    pub fn scenario(&self, point: usize) -> Result<Scenario, ScenarioError> {
        self.scenario_with(point, &[])
    }

    /// The same with other grains of some of the library's programs.
    pub(crate) fn scenario_with(
        &self,
        point: usize,
        grains: &[(&str, Ns)],
    ) -> Result<Scenario, ScenarioError> {
        let indices = self.indices(point);
        let edits = self.edits.iter().zip(&indices).flat_map(|(edits, index)| &edits[*index]);
        // Of two axes that set the same value, the later one decides.
        let edits: BTreeMap<usize, (&Range<usize>, &str)> =
            edits.map(|(place, value)| (place.start, (place, value.as_str()))).collect();
        let mut text = self.text.clone();
        for (place, value) in edits.into_values().rev() {
            text.replace_range(place.clone(), value);
        }
        let setting = |(axis, value): (&Axis, Value)| format!("{} = {value}", axis.key);
        Scenario::parse_with(&self.name, &text, grains).map_err(|source| {
            let point: Vec<String> = self.axes.iter().zip(self.values(point)).map(setting).collect();
            ScenarioError::Point { point: point.join(", "), source: Box::new(source) }
        })
    }

    /// Runs every combination on `workers` cores; `done` is called after each. Rows do not depend on
    /// `workers`.
    ///
    /// # Errors
    /// A combination cannot be run; if there are several, the first one.
    pub fn run(&self, workers: NonZeroUsize, done: impl Fn() + Sync) -> Result<Vec<Row>, ScenarioError> {
        let points: Vec<usize> = (0..self.points()).collect();
        // Run nothing if one of them is invalid.
        self.check()?;
        let rows: Vec<Vec<Row>> = parallel::map(&points, workers, |point| self.run_point(*point), done)
            .into_iter()
            .collect::<Result<_, ScenarioError>>()?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Checks every combination without running it.
    ///
    /// # Errors
    /// A combination is invalid; if there are several, the first one.
    pub fn check(&self) -> Result<(), ScenarioError> {
        (0..self.points()).try_for_each(|point| self.scenario(point).map(drop))
    }

    /// Runs one combination.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn run_point(&self, point: usize) -> Result<Vec<Row>, ScenarioError> {
        let outcome = self.scenario(point)?.run_with(None, &mut [] as &mut [Journal])?;
        Ok(rows(point, &self.values(point), &outcome.report))
    }
}

fn rows(point: usize, values: &[Value], report: &Report) -> Vec<Row> {
    let of_vm = |vm: &VmReport| -> Vec<Row> {
        let shares = SHARES.map(|(_, categories)| categories.iter().map(|c| vm.share(*c)).sum());
        let of_task = |task: &crate::TaskReport| {
            let totals = task.totals;
            let seconds = totals.finished.unwrap_or(report.elapsed).max(1) as f64 / 1e9;
            Row {
                point,
                values: values.to_vec(),
                vm: vm.name.clone(),
                program: task.name.clone(),
                end: report.end.clone(),
                elapsed_ns: report.elapsed,
                totals,
                operations_per_s: totals.operations as f64 / seconds,
                wake_us: totals.wake_ns as f64 / 1e3 / totals.wakes.max(1) as f64,
                halts_per_s: vm.halts_per_s(report.elapsed),
                interrupts: vm.count(|c| c.resched_ipis),
                lock_holders_preempted: vm.count(|c| c.lock_holder_preempted),
                pause_exits: vm.count(|c| c.pause_exits),
                lock_spin: vm.share(Category::LockSpin),
                tlb_spin: vm.share(Category::TlbSpin),
                host_cpu_ns: vm.host_cpu(),
                shares,
            }
        };
        vm.tasks.iter().map(of_task).collect()
    };
    report.vms.iter().flat_map(of_vm).collect()
}
