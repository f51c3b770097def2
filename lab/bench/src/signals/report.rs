//! Results: each pair of settings of each case with its verdicts, and how often each signal was right.

use gleaner_policy::{Block, Difference, Signal, block_lengths};
use gleaner_proto::result::{Environment, Failure};
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::cell::Sample;
use super::judge::{Ratio, Truth, Verdict};
use super::shares;
use crate::stats::median;

/// How many of a signal's worst cases are named.
const MAX_NAMED: usize = 3;

/// Results of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The command line that repeats the run.
    pub repeat_with: String,
    /// The machine.
    pub environment: Environment,
    /// Measurements of each setting per case.
    pub rounds: usize,
    /// Duration of the run, in seconds.
    pub elapsed_s: f64,
    /// Whether the run ended early.
    pub interrupted: bool,
    /// Cases that could not be measured here.
    pub absent: Vec<UnmeasuredCase>,
    /// All comparisons.
    pub pairs: Vec<Pair>,
    /// Failed cells.
    pub failures: Vec<Failure>,
}

/// A case that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmeasuredCase {
    /// Name of the case.
    pub case: String,
    /// Reason and remedy.
    pub why: String,
}

/// A case under one setting, compared with the same case untouched.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pair {
    /// Name of the case.
    pub case: String,
    /// Unit of the program's rate, per second.
    pub unit: String,
    /// Whether clients determine the rate.
    pub open_loop: bool,
    /// The compared setting.
    pub setting: String,
    /// How it differs from the untouched one.
    pub difference: Difference,
    /// Actual change of the program's rate.
    pub progress: Truth,
    /// Actual change of 1 / mean latency, in an open loop.
    pub latency: Option<Truth>,
    /// Result of each signal.
    pub signals: Vec<SignalFinding>,
    /// Untouched and under the setting, by round.
    pub rounds: Vec<(Sample, Sample)>,
}

/// What one signal shows for a pair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SignalFinding {
    /// The judged signal.
    pub signal: Signal,
    /// Its ratio, even if invalid; `None` if it cannot be computed.
    pub ratio: Option<Ratio>,
    /// Whether it was right; `None` if there is nothing to judge it by.
    pub verdict: Option<Verdict>,
    /// Distance of the logarithms of its ratio and the actual one; `None` if it is silent or not judged.
    pub size_error: Option<f64>,
    /// Whether the policy would rely on it here.
    pub decides: bool,
}

/// How a signal performed in all pairs of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignalAccuracy {
    /// The judged signal.
    pub signal: Signal,
    /// The kind of pairs.
    pub difference: Difference,
    /// Number of pairs with this verdict; the same for the next four fields.
    pub right: usize,
    /// See `right`.
    pub wrong: usize,
    /// See `right`.
    pub missed: usize,
    /// See `right`.
    pub unclear: usize,
    /// See `right`.
    pub silent: usize,
    /// Number of pairs in which it decides.
    pub decides: usize,
    /// Median of its size errors.
    pub median_error: Option<f64>,
    /// Largest size error.
    pub worst_error: Option<f64>,
    /// The pairs with the largest size errors, wrong ones first.
    pub worst: Vec<String>,
    /// The pairs in which it decides and was wrong.
    pub wrong_decisions: Vec<String>,
}

impl Pair {
    /// Judges the rounds of a case under a setting; `None` without rounds.
    pub(super) fn new(case: &Case, setting: &str, rounds: Vec<(Sample, Sample)>) -> Option<Self> {
        let ratio = |of: &dyn Fn(&Sample) -> Option<f64>| {
            let logarithm = |(b, c): &(Sample, Sample)| Some((of(c)? / of(b)?).ln());
            Ratio::of(&rounds.iter().filter_map(logarithm).filter(|l| l.is_finite()).collect::<Vec<_>>())
        };
        let rate = ratio(&|sample| Some(sample.rate))?;
        let progress = if case.open_loop { Truth::none(rate) } else { Truth::of(rate) };
        let speed = |sample: &Sample| sample.latency_us.map(|us| 1.0 / us);
        let latency = ratio(&speed).filter(|_| case.open_loop).map(Truth::of);
        let (first, second) = rounds.first()?;
        let same = first.interval.setting.active == second.interval.setting.active;
        let difference = if same { Difference::Retention } else { Difference::ActiveSet };
        let trial = Trial::new(&rounds, difference);
        let deciding = trial.deciding();
        let said = |signal: Signal| {
            let truth = if signal == Signal::Waiting { latency } else { Some(progress) };
            let decides = match signal {
                Signal::Waiting => {
                    truth.is_some() && deciding.is_some_and(Signal::is_exact) && trial.is_valid(signal)
                }
                _ => deciding == Some(signal),
            };
            let ratio = trial.ratio(signal);
            let heard = ratio.filter(|_| trial.is_valid(signal));
            let verdict = |truth: Truth| heard.map_or(Verdict::Silent, |r| truth.judge(r, signal.margin()));
            let size_error = truth.zip(heard).map(|(truth, ratio)| truth.size_error(ratio));
            SignalFinding { signal, ratio, verdict: truth.map(verdict), size_error, decides }
        };
        let signals = Signal::ALL.map(said).to_vec();
        let (case, unit, open_loop) = (case.name.clone(), case.unit.clone(), case.open_loop);
        let setting = setting.to_owned();
        Some(Self { case, unit, open_loop, setting, difference, progress, latency, signals, rounds })
    }

    /// The case and the setting.
    pub fn name(&self) -> String {
        format!("{}, {}", self.case, self.setting)
    }

    /// The change that `signal` is compared with here.
    pub(super) fn truth(&self, signal: Signal) -> Option<Truth> {
        if signal == Signal::Waiting { self.latency } else { Some(self.progress) }
    }
}

/// The rounds as a trial would see them.
struct Trial {
    difference: Difference,
    /// The original rounds.
    whole: Vec<(Block, Block)>,
    /// The rounds as blocks, for each of the lengths that a trial tries in turn.
    blocks: Vec<Vec<(Block, Block)>>,
}

impl Trial {
    fn new(rounds: &[(Sample, Sample)], difference: Difference) -> Self {
        let whole: Vec<_> = rounds.iter().map(|(b, c)| (b.interval.seen, c.interval.seen)).collect();
        let baselines = whole.iter().map(|(b, _)| *b);
        let sum = |a: Block, b: Block| Block {
            period: a.period + b.period,
            workload: shares::sum(a.workload, b.workload),
            ..a
        };
        let seen = baselines.reduce(sum).unwrap_or_default();
        let costs: Vec<f64> = rounds.iter().map(|(b, _)| b.interval.cost.as_secs_f64()).collect();
        let cost = std::time::Duration::from_secs_f64(median(&costs).unwrap_or_default());
        let lengths = block_lengths(&seen, cost, difference);
        let of_length = |length| {
            rounds.iter().map(|(b, c)| (b.interval.block(length), c.interval.block(length))).collect()
        };
        Self { difference, whole, blocks: lengths.into_iter().map(of_length).collect() }
    }

    /// The signal that the policy would rely on.
    fn deciding(&self) -> Option<Signal> {
        self.blocks.iter().find_map(|pairs| Signal::of_comparison(pairs, self.difference))
    }

    fn is_valid(&self, signal: Signal) -> bool {
        self.blocks.iter().any(|pairs| match signal {
            Signal::Waiting => signal.is_comparable(pairs),
            _ => signal.is_valid(pairs, self.difference),
        })
    }

    fn ratio(&self, signal: Signal) -> Option<Ratio> {
        let logarithms: Vec<_> = self.whole.iter().filter_map(|(b, c)| signal.log_ratio(b, c)).collect();
        Ratio::of(&logarithms)
    }
}

impl Report {
    /// The accounts of all signals that the run can judge. Excludes the user's counter, which is the
    /// program's own report.
    pub fn accounts(&self) -> Vec<SignalAccuracy> {
        let signals = Signal::ALL.into_iter().filter(|signal| *signal != Signal::Counter);
        let kinds = [Difference::Retention, Difference::ActiveSet];
        signals.flat_map(|signal| kinds.map(|kind| self.account(signal, kind))).collect()
    }

    fn account(&self, signal: Signal, difference: Difference) -> SignalAccuracy {
        let of_kind = self.pairs.iter().filter(|pair| pair.difference == difference);
        let judged: Vec<(&Pair, SignalFinding, Verdict)> = of_kind
            .filter_map(|pair| {
                let said = pair.signals.iter().find(|said| said.signal == signal)?;
                Some((pair, *said, said.verdict?))
            })
            .collect();
        let count = |verdict| judged.iter().filter(|(.., v)| *v == verdict).count();
        let mut errors: Vec<(bool, f64, &Pair)> = judged
            .iter()
            .filter_map(|(pair, said, verdict)| Some((*verdict == Verdict::Wrong, said.size_error?, *pair)))
            .collect();
        errors.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
        let sizes: Vec<f64> = errors.iter().map(|(_, error, _)| *error).collect();
        let wrong_decisions =
            judged.iter().filter(|(_, said, verdict)| said.decides && *verdict == Verdict::Wrong);
        SignalAccuracy {
            signal,
            difference,
            right: count(Verdict::Right),
            wrong: count(Verdict::Wrong),
            missed: count(Verdict::Missed),
            unclear: count(Verdict::Unclear),
            silent: count(Verdict::Silent),
            decides: judged.iter().filter(|(_, said, _)| said.decides).count(),
            median_error: median(&sizes),
            worst_error: sizes.iter().copied().reduce(f64::max),
            worst: errors.iter().take(MAX_NAMED).map(|(.., pair)| pair.name()).collect(),
            wrong_decisions: wrong_decisions.map(|(pair, ..)| pair.name()).collect(),
        }
    }
}
