//! The result file of `gleaner bench`: everything needed to judge a measurement, now and later.
//!
//! Raw samples come first, with their round, their position in it and their time. Summaries and comparisons
//! computed from them are stored beside them, so that a reader needs no statistics of its own. `docs/bench.md`
//! describes the format.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

mod correlation;
mod file;
mod metric;
mod server;
mod warning;

pub use correlation::{Correlation, correlation};
pub use file::{ResultError, check_place, write_file};
pub use metric::{Better, Metric};
pub use server::{Class, Placement, ServerRow};
pub use warning::Warning;

/// The version of the format that this crate reads and writes.
pub const SCHEMA: u32 = 1;

/// One run of `gleaner bench`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Title of the measurement.
    pub title: String,
    /// Origin of the experiment, e.g. `Gleaner (ATC'14), Table 2`; empty for the user's own.
    pub source: String,
    /// The command line that repeats the run.
    pub repeat_with: String,
    /// The machine it ran on.
    pub environment: Environment,
    /// The number and order of samples.
    pub plan: Plan,
    /// The modes compared, in the order of the tables.
    pub modes: Vec<ModeInfo>,
    /// The rows run, in the order of the tables.
    pub rows: Vec<Row>,
    /// Caveats, each with its remedy.
    pub warnings: Vec<Warning>,
    /// Samples that could not be taken although the run went on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// How the run ended.
    pub ending: Ending,
    /// Earlier runs, of which rows were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Part>,
}

/// The rows of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The command line that repeats the run.
    pub repeat_with: String,
    /// The machine that they were measured on.
    pub environment: Environment,
    /// Their names.
    pub rows: Vec<String>,
}

/// The machine, as far as it affects wake-up costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Start of the run, UTC, ISO 8601.
    pub date: String,
    /// The version of Gleaner.
    pub gleaner: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -v`.
    pub kernel_version: String,
    /// The hypervisor, e.g. `KVM`, or `none (bare metal)`.
    pub hypervisor: String,
    /// Whether there is a hypervisor: distinguishes files of virtual machines from native ones.
    pub virtualised: bool,
    /// Model name of the first CPU; empty if unknown.
    pub cpu_model: String,
    /// The number of vCPUs (native: CPUs) that the run could use.
    pub vcpus: usize,
    /// Memory in bytes (`MemTotal`); 0 if unknown.
    pub memory_bytes: u64,
    /// The cpuidle driver, or `none`.
    pub cpuidle_driver: String,
    /// The cpuidle governor, or `none`.
    pub cpuidle_governor: String,
    /// The preemption model, and where it was found.
    pub preemption: String,
    /// The kernel settings that Gleaner changes, as they were before the run: path and value.
    pub knobs: BTreeMap<String, String>,
}

/// The number and order of the samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of rounds requested, or the minimum if `precision` is set; each measures every mode of a row
    /// once.
    pub rounds: usize,
    /// Upper bound of rounds, if `precision` is set.
    pub max_rounds: Option<usize>,
    /// A row ends when the interval of every mode's primary metric is narrower than this share of its median.
    pub precision: Option<f64>,
    /// Discarded rounds before those.
    pub warmup_rounds: usize,
    /// Duration of a built-in workload, in seconds.
    pub window_s: f64,
    /// Random seed of the order of modes.
    pub seed: u64,
    /// The order of the samples, as text.
    pub order: String,
}

/// One way to run a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeInfo {
    /// Name of the mode, e.g. `default`, `gleaner`, `haltpoll:200us`, `user:tuned`.
    pub name: String,
    /// Description for people.
    pub about: String,
    /// `user:NAME` only: the shell commands that apply it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// `user:NAME` only: the shell commands that undo it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
}

/// One command or workload, in every mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the row.
    pub name: String,
    /// Unit of [`Metric::Throughput`], e.g. `requests`; empty if the row has no throughput.
    pub unit: String,
    /// The metric shown in the tables and used for the verdicts.
    pub primary: Metric,
    /// The built-in workload, if it is one.
    pub workload: Option<String>,
    /// Servers only: how they are measured and judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerRow>,
    /// Command lines that ran beside it in the same VM.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub co_runners: Vec<String>,
    /// The paper's values of the primary metric, by mode.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paper: BTreeMap<String, f64>,
    /// The paper's ratios of the primary metric to the first mode, by mode.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paper_ratio: BTreeMap<String, f64>,
    /// The modes, in the order of [`BenchResult::modes`].
    pub cells: Vec<Cell>,
    /// Every mode compared with the first one, by metric.
    pub comparisons: Vec<Comparison>,
}

/// One row in one mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the mode.
    pub mode: String,
    /// The exact command line.
    pub command: String,
    /// The samples in the order of their rounds; missing if the command failed or the run ended before.
    pub samples: Vec<Sample>,
    /// Median and interval of each metric.
    pub summaries: BTreeMap<Metric, Estimate>,
}

/// One run of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 0. Samples of one row with the same round are a pair.
    pub round: usize,
    /// Position in the round, from 0.
    pub position: usize,
    /// Start in seconds since the start of the run.
    pub start_s: f64,
    /// The values measured, without metrics that this run or machine does not have.
    pub metrics: BTreeMap<Metric, f64>,
    /// Gleaner's settings, one entry per change; only in modes that run under Gleaner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Moment>,
}

/// The setting in force from one moment on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since Gleaner started to control the command.
    pub at_s: f64,
    /// The number of active vCPUs.
    pub active_vcpus: usize,
    /// The retention method, e.g. `halt`, `haltpoll`.
    pub retention: String,
    /// The method's limit in µs; 0 without retention and for a method without a limit.
    pub limit_us: f64,
}

/// A median with its interval, in the unit of the values; `docs/statistics.md` says how both are computed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median of the values.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// Number of values.
    pub n: usize,
    /// The probability that such an interval covers the true median, 0..=1: about 0.95, less with five values
    /// or fewer.
    pub confidence: f64,
}

/// A mode compared with another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The metric compared.
    pub metric: Metric,
    /// The mode compared.
    pub mode: String,
    /// The mode that it is compared with.
    pub baseline: String,
    /// The pseudo-median of the per-round ratios `mode / baseline`, with its interval.
    pub ratio: Estimate,
    /// The two-sided p value of the Mann-Whitney test of the samples.
    pub rank_sum_p: f64,
    /// The two-sided p value of Wilcoxon's signed-rank test of the ratios.
    pub signed_rank_p: f64,
    /// The conclusion.
    pub verdict: Verdict,
}

/// The conclusion of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The mode is better than the baseline.
    Better,
    /// The mode is worse.
    Worse,
    /// No difference was found.
    NoDifference,
    /// They differ, but the metric has no better direction.
    Different,
    /// Too few samples for a conclusion.
    TooFew,
}

/// A sample that could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Name of the row.
    pub row: String,
    /// Name of the mode.
    pub mode: String,
    /// Number of the round, from 0; `None` during warm-up.
    pub round: Option<usize>,
    /// The error's text.
    pub message: String,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum Ending {
    /// Everything was measured.
    Complete,
    /// A signal ended it; earlier measurements are included.
    Interrupted,
    /// A command failed; earlier measurements are included.
    Failed {
        /// Name of the row.
        row: String,
        /// Name of the mode.
        mode: String,
        /// The round, from 0; `None` during warm-up.
        round: Option<usize>,
        /// The error's text.
        message: String,
    },
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, cpu_model, vcpus, hypervisor, .. } = self;
        write!(f, "Linux {kernel}, {cpu_model}, {vcpus} vCPUs, hypervisor {hypervisor}")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, mode, round, message } = self;
        match round {
            Some(round) => write!(f, "{row}, {mode}, round {}: {message}", round + 1),
            None => write!(f, "{row}, {mode}, warm-up: {message}"),
        }
    }
}

/// The median and its interval, with two decimals unless the format asks for others.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, low, high, .. } = self;
        let decimals = f.precision().unwrap_or(2);
        write!(f, "{median:.decimals$} [{low:.decimals$}, {high:.decimals$}]")
    }
}

impl Estimate {
    /// Whether `value` is within the interval.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

impl BenchResult {
    /// The row of this name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

impl Row {
    /// The cell of this mode.
    pub fn cell(&self, mode: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.mode == mode)
    }

    /// Number of rounds in which any of its modes was measured.
    pub fn rounds(&self) -> usize {
        let samples = self.cells.iter().flat_map(|cell| &cell.samples);
        samples.map(|sample| sample.round + 1).max().unwrap_or_default()
    }

    /// `mode` compared with the first mode by `metric`.
    pub fn comparison(&self, mode: &str, metric: Metric) -> Option<&Comparison> {
        self.comparisons.iter().find(|c| c.mode == mode && c.metric == metric)
    }

    /// The metrics that any sample has, in the order of [`Metric::ALL`].
    pub fn metrics(&self) -> Vec<Metric> {
        let has = |metric: &Metric| {
            self.cells.iter().flat_map(|cell| &cell.samples).any(|s| s.metrics.contains_key(metric))
        };
        Metric::ALL.into_iter().filter(has).collect()
    }
}

impl Cell {
    /// The values of `metric`, in the order of the samples.
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| sample.metrics.get(&metric).copied()).collect()
    }

    /// The values of `metric` in the first `rounds` rounds; `None` for a round without one.
    pub fn by_round(&self, metric: Metric, rounds: usize) -> Vec<Option<f64>> {
        let mut values = vec![None; rounds];
        for sample in &self.samples {
            if let Some(slot) = values.get_mut(sample.round) {
                *slot = sample.metrics.get(&metric).copied();
            }
        }
        values
    }
}
