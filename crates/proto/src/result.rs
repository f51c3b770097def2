//! The result file of `gleaner bench`: everything that is needed to judge a measurement, and to judge it again later.
//!
//! Raw samples come first, with their round, their place in the round and their time; summaries and comparisons are
//! computed from them and stored beside them, so that a reader needs no statistics of its own. `docs/bench.md`
//! describes the format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod correlation;
mod file;
mod metric;
mod warning;

pub use correlation::{Correlation, correlation};
pub use file::{ResultError, check_place, write_file};
pub use metric::{Better, Metric};
pub use warning::Warning;

/// The version of the format that this crate reads and writes.
pub const SCHEMA: u32 = 1;

/// One run of `gleaner bench`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was measured, for people.
    pub title: String,
    /// Where the experiment comes from, e.g. `Gleaner (ATC'14), Table 2`; empty for one of the user's own.
    pub source: String,
    /// The command line that repeats the run.
    pub repeat_with: String,
    /// What it was measured on.
    pub environment: Environment,
    /// How often and in which order.
    pub plan: Plan,
    /// The ways to run a row that were compared, in the order of the tables.
    pub modes: Vec<ModeInfo>,
    /// What was run, in the order of the tables.
    pub rows: Vec<Row>,
    /// What stands against believing the numbers, each with its remedy.
    pub warnings: Vec<Warning>,
    /// How the run ended.
    pub ending: Ending,
}

/// The machine, as far as it decides wake-up costs.
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
    /// The hypervisor below this kernel, e.g. `KVM`, or `none (bare metal)`.
    pub hypervisor: String,
    /// Whether there is a hypervisor: tells the files of a virtual machine from native ones.
    pub virtualised: bool,
    /// Model name of the first CPU; empty if the kernel does not say.
    pub cpu_model: String,
    /// How many vCPUs (native: CPUs) the run could use.
    pub vcpus: usize,
    /// Memory in bytes (`MemTotal`).
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

/// How often and in which order the samples were taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Rounds that were asked for; each measures every mode of a row once. With a precision: the least number.
    pub rounds: usize,
    /// The most rounds, where a precision was asked for.
    pub max_rounds: Option<usize>,
    /// A row ends when the interval of every mode's primary metric is narrower than this share of its median.
    pub precision: Option<f64>,
    /// Rounds before them whose samples were thrown away.
    pub warmup_rounds: usize,
    /// How long a built-in workload runs, in seconds.
    pub window_s: f64,
    /// Seed of the order of modes.
    pub seed: u64,
    /// The order of the samples, in words.
    pub order: String,
}

/// One way to run a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeInfo {
    /// Its name, e.g. `default`, `gleaner`, `haltpoll:200us`, `user:tuned`.
    pub name: String,
    /// What it does, for people.
    pub about: String,
    /// `user:NAME` only: the shell commands that put it in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// `user:NAME` only: the shell commands that undo it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
}

/// One command or workload, in every mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What is counted by [`Metric::Throughput`], e.g. `requests`; empty where the row has no throughput.
    pub unit: String,
    /// The metric that the tables show and the verdicts judge.
    pub primary: Metric,
    /// The built-in workload, where the row is one.
    pub workload: Option<String>,
    /// What ran beside it in the same VM, as command lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub co_runners: Vec<String>,
    /// The paper's value of the primary metric, by mode.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paper: BTreeMap<String, f64>,
    /// The paper's ratios of the primary metric to the first mode, by mode.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paper_ratio: BTreeMap<String, f64>,
    /// The modes, in the order of [`BenchResult::modes`].
    pub cells: Vec<Cell>,
    /// Every mode against the first one, by metric.
    pub comparisons: Vec<Comparison>,
}

/// One row in one mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The mode's name.
    pub mode: String,
    /// The command line that ran, exactly.
    pub command: String,
    /// The samples, in the order of their rounds; one is missing where it failed or the run ended before it.
    pub samples: Vec<Sample>,
    /// Median and interval of each metric.
    pub summaries: BTreeMap<Metric, Estimate>,
}

/// One run of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 0. Samples of one row with the same round are a pair.
    pub round: usize,
    /// Its place in the round, from 0.
    pub position: usize,
    /// When it began, in seconds since the run's beginning.
    pub start_s: f64,
    /// What was measured; a metric that this run or this machine does not have is not there.
    pub metrics: BTreeMap<Metric, f64>,
    /// What Gleaner held in force, from each change on; only in modes that run under Gleaner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Moment>,
}

/// What was in force from one moment on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since Gleaner began to control the command.
    pub at_s: f64,
    /// How many vCPUs the workload could use.
    pub active_vcpus: usize,
    /// The retention method, e.g. `halt`, `haltpoll`.
    pub retention: String,
    /// Its limit in µs; 0 without retention and for a method without a limit.
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
    /// How many values there were.
    pub n: usize,
    /// How often such an interval covers the true median, 0..=1: about 0.95, less with five values or fewer.
    pub confidence: f64,
}

/// A mode against another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The metric.
    pub metric: Metric,
    /// The mode.
    pub mode: String,
    /// The mode that it is compared with.
    pub baseline: String,
    /// The pseudo-median of the per-round ratios `mode / baseline`, with its interval.
    pub ratio: Estimate,
    /// The two-sided p value of the Mann-Whitney test of the samples.
    pub rank_sum_p: f64,
    /// The two-sided p value of Wilcoxon's signed-rank test of the ratios.
    pub signed_rank_p: f64,
    /// What follows.
    pub verdict: Verdict,
}

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The mode is better than the baseline.
    Better,
    /// The mode is worse.
    Worse,
    /// No difference was found.
    NoDifference,
    /// They differ, and the metric has no better direction.
    Different,
    /// Too few samples to say.
    TooFew,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum Ending {
    /// Everything was measured.
    Complete,
    /// A signal ended it; what was measured until then is there.
    Interrupted,
    /// A command failed; what was measured until then is there.
    Failed {
        /// The row.
        row: String,
        /// The mode.
        mode: String,
        /// The round, from 0; `None` during warm-up.
        round: Option<usize>,
        /// What went wrong.
        message: String,
    },
}

impl Estimate {
    /// Whether `value` lies in the interval.
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

    /// `mode` against the first mode by `metric`.
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

    /// The values of `metric` by round; `None` where a round among the first `rounds` has none.
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
