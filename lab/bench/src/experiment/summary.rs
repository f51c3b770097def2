//! Derived from the samples: medians with intervals, comparisons with the baseline, warnings.

use std::collections::BTreeMap;
use std::time::Instant;

use gleaner_proto::result::{self, Better, Comparison, Metric, Warning};

use super::{Experiment, Program, Rounds, Row, TakenSample};
use crate::mode::Mode;
use crate::runner::RowSamples;
use crate::stats::{self, FULL_ROUNDS, MIN_ROUNDS, SIGNIFICANCE};

/// Share of the vCPUs' time in a sample from which steal is reported.
const STEAL_SHARE: f64 = 0.01;
/// The same for other programs, whose time is sampled by the tick: inaccurate for short samples.
const NEIGHBOUR_SHARE: f64 = 0.05;
/// Minimum length in seconds of a sample that is checked for other programs.
const MIN_JUDGED_S: f64 = 0.5;
/// Change over the run, as a share of the median, from which drift is reported.
const DRIFT_SHARE: f64 = 0.05;

/// Builds rows of the result from samples.
pub(super) struct Summary<'e> {
    /// The experiment that was run.
    pub(super) experiment: &'e Experiment,
    /// Command lines of each row's co-runners.
    pub(super) co_runners: Vec<Vec<String>>,
    /// Start of the run.
    pub(super) began: Instant,
}

impl Summary<'_> {
    /// The row with this index.
    pub(super) fn row(&self, index: usize, samples: &RowSamples<TakenSample>) -> result::Row {
        let row = &self.experiment.rows[index];
        let cells = self.experiment.modes.iter().zip(&samples.samples);
        let mut cells: Vec<result::Cell> =
            cells.map(|(mode, samples)| cell(mode, samples, self.began)).collect();
        add_system_throughput(&mut cells, row.co_runners.len());
        cells.iter_mut().for_each(summarise);
        let mut row = result::Row {
            name: row.name.clone(),
            unit: row.unit.clone(),
            primary: row.primary,
            workload: row.program.workload().map(|workload| workload.to_string()),
            server: match &row.program {
                Program::Server { row, window } => Some(row.described(*window)),
                _ => None,
            },
            co_runners: self.co_runners[index].clone(),
            paper: row.paper.clone(),
            paper_ratio: row.paper_ratio.clone(),
            cells,
            comparisons: Vec::new(),
        };
        row.comparisons = comparisons(&row);
        row
    }

    /// The rows with at least one sample.
    pub(super) fn rows(&self, samples: &[RowSamples<TakenSample>]) -> Vec<result::Row> {
        let has_any = |row: &RowSamples<TakenSample>| row.samples.iter().flatten().any(Option::is_some);
        samples.iter().enumerate().filter(|(_, row)| has_any(row)).map(|(i, row)| self.row(i, row)).collect()
    }
}

fn cell(mode: &Mode, samples: &[Option<TakenSample>], began: Instant) -> result::Cell {
    let taken: Vec<&TakenSample> = samples.iter().flatten().collect();
    let sample = |taken: &&TakenSample| result::Sample {
        round: taken.cell.round.unwrap_or_default(),
        position: taken.cell.position,
        start_s: taken.measured.began.duration_since(began).as_secs_f64(),
        metrics: taken.measured.metrics.clone(),
        timeline: taken.measured.control.timeline.clone(),
    };
    result::Cell {
        mode: mode.to_string(),
        command: taken.first().map_or_else(String::new, |taken| taken.measured.command.clone()),
        samples: taken.iter().map(sample).collect(),
        summaries: BTreeMap::new(),
    }
}

fn summarise(cell: &mut result::Cell) {
    let summaries =
        Metric::ALL.into_iter().filter_map(|metric| Some((metric, stats::estimate(&cell.values(metric))?)));
    cell.summaries = summaries.collect();
}

/// Adds [`Metric::SystemThroughput`] to the samples in which all `co_runners` reported their work.
fn add_system_throughput(cells: &mut [result::Cell], co_runners: usize) {
    let Some(baseline) = cells.first() else { return };
    let median = |of: fn(&result::Sample) -> Option<f64>| {
        let values: Vec<f64> = baseline.samples.iter().filter_map(of).collect();
        stats::median(&values).filter(|median| *median > 0.0)
    };
    let (Some(own), Some(beside)) = (median(speed), median(speed_beside)) else { return };
    for sample in cells.iter_mut().flat_map(|cell| &mut cell.samples) {
        if let (Some(mine), Some(theirs)) = (speed(sample), speed_beside(sample)) {
            let co_runners = co_runners as f64;
            let mean = (mine / own + co_runners * theirs / beside) / (1.0 + co_runners);
            sample.metrics.insert(Metric::SystemThroughput, mean);
        }
    }
}

/// Work per second; runs per second if the program reports no work.
fn speed(sample: &result::Sample) -> Option<f64> {
    let said = sample.metrics.get(&Metric::Throughput).copied();
    said.or_else(|| sample.metrics.get(&Metric::WallS).map(|wall| wall.recip()))
}

fn speed_beside(sample: &result::Sample) -> Option<f64> {
    sample.metrics.get(&Metric::CoThroughput).copied()
}

/// Compares every mode with the first one, by each metric that both have.
fn comparisons(row: &result::Row) -> Vec<Comparison> {
    let Some((baseline, others)) = row.cells.split_first() else { return Vec::new() };
    let rounds = row.rounds();
    let compare = |cell: &result::Cell, metric: Metric| {
        let (values, base) = (cell.by_round(metric, rounds), baseline.by_round(metric, rounds));
        let judged = stats::judge(&values, &base, metric.better())?;
        Some(Comparison {
            metric,
            mode: cell.mode.clone(),
            baseline: baseline.mode.clone(),
            ratio: judged.ratio,
            rank_sum_p: judged.rank_sum_p,
            signed_rank_p: judged.signed_rank_p,
            verdict: judged.verdict,
        })
    };
    others.iter().flat_map(|cell| Metric::ALL.into_iter().filter_map(move |m| compare(cell, m))).collect()
}

/// Relative width of the interval of the median of `values`; `None` without values, or if the median is 0.
pub(super) fn width(values: &[f64]) -> Option<f64> {
    let estimate = stats::estimate(values)?;
    let width = (estimate.high - estimate.low) / estimate.median;
    width.is_finite().then_some(width)
}

/// Fixed settings that were not in force, one warning per row and mode.
pub(super) fn not_in_force(experiment: &Experiment, rows: &[RowSamples<TakenSample>]) -> Vec<Warning> {
    let cells = experiment.rows.iter().zip(rows).flat_map(|(row, samples)| {
        experiment.modes.iter().zip(&samples.samples).map(move |(mode, samples)| (row, mode, samples))
    });
    let warning = |(row, mode, samples): (&Row, &Mode, &Vec<Option<TakenSample>>)| {
        samples.iter().flatten().find_map(|taken| {
            Some(Warning::NotInForce {
                row: row.name.clone(),
                mode: mode.to_string(),
                round: taken.cell.round?,
                why: taken.measured.control.not_in_force.clone()?,
            })
        })
    };
    cells.filter_map(warning).collect()
}

/// Caveats about the rows.
pub(super) fn warnings(rows: &[result::Row], vcpus: usize, asked: Rounds) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for row in rows {
        let rounds = row.rounds();
        if rounds < FULL_ROUNDS {
            warnings.push(Warning::TooFewRounds { row: row.name.clone(), rounds, needed: FULL_ROUNDS });
        }
        for cell in &row.cells {
            warnings.extend(of_the_machine(row, cell, vcpus));
            warnings.extend(of_the_values(row, cell));
        }
        warnings.extend(imprecise(row, rounds, asked));
    }
    warnings
}

/// Steal, and other programs.
fn of_the_machine(row: &result::Row, cell: &result::Cell, vcpus: usize) -> Vec<Warning> {
    let value = |sample: &result::Sample, metric| sample.metrics.get(&metric).copied().unwrap_or_default();
    let share = |sample: &result::Sample, time: f64| {
        time / (value(sample, Metric::WallS) * vcpus.max(1) as f64).max(f64::MIN_POSITIVE)
    };
    let steal = |sample: &result::Sample| share(sample, value(sample, Metric::StealS));
    let others = |sample: &result::Sample| {
        let own = [Metric::CpuUserS, Metric::CpuSystemS, Metric::CpuYieldS].map(|m| value(sample, m));
        share(sample, value(sample, Metric::CpuBusyS) - own.iter().sum::<f64>())
    };
    let worst = |of: &dyn Fn(&result::Sample) -> f64, limit: f64| {
        let judged = cell.samples.iter().filter(|s| value(s, Metric::WallS) >= MIN_JUDGED_S);
        let worst = judged.map(|s| (of(s), s.round)).max_by(|a, b| a.0.total_cmp(&b.0));
        worst.filter(|(share, _)| *share > limit)
    };
    let names = || (row.name.clone(), cell.mode.clone());
    let steal = worst(&steal, STEAL_SHARE).map(|(share, round)| {
        let (row, mode) = names();
        Warning::Steal { row, mode, share, round }
    });
    // Co-runners are other programs, but intended; what a server itself uses is not known.
    let alone = row.co_runners.is_empty() && row.server.is_none();
    let others = worst(&others, NEIGHBOUR_SHARE).filter(|_| alone).map(|(share, round)| {
        let (row, mode) = names();
        Warning::Neighbours { row, mode, share, round }
    });
    steal.into_iter().chain(others).collect()
}

/// Outliers and drift of the primary metric.
fn of_the_values(row: &result::Row, cell: &result::Cell) -> Vec<Warning> {
    let values = cell.values(row.primary);
    // With fewer values, one that differs from two close ones would already be an extreme outlier.
    if values.len() < MIN_ROUNDS {
        return Vec::new();
    }
    let (name, mode, metric) = (|| row.name.clone(), || cell.mode.clone(), row.primary);
    let round = |index: usize| cell.samples.get(index).map_or(index, |sample| sample.round);
    let outlying: Vec<usize> = stats::outliers(&values).iter().map(|o| round(o.index)).collect();
    let outliers = (!outlying.is_empty()).then(|| Warning::Outliers {
        row: name(),
        mode: mode(),
        metric,
        rounds: outlying,
    });
    let drift = stats::drift(&values).filter(|d| d.p <= SIGNIFICANCE && d.change.abs() >= DRIFT_SHARE);
    let drift = drift.map(|d| Warning::Drift { row: name(), mode: mode(), metric, change: d.change });
    outliers.into_iter().chain(drift).collect()
}

/// The mode with the widest interval, if that is wider than requested.
fn imprecise(row: &result::Row, rounds: usize, asked: Rounds) -> Option<Warning> {
    let asked = asked.precision?;
    let width = |cell: &result::Cell| Some((width(&cell.values(row.primary))?, cell.mode.clone()));
    let (width, mode) = row.cells.iter().filter_map(width).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (width > asked).then(|| Warning::Imprecise { row: row.name.clone(), mode, width, asked, rounds })
}

/// The verdict in one or two words.
pub(super) fn verdict(comparison: &Comparison) -> &'static str {
    use result::Verdict::{Better as Gain, Different, NoDifference, TooFew, Worse};
    match (comparison.verdict, comparison.metric, comparison.metric.better()) {
        (Gain, Metric::Throughput | Metric::WallS, _) => "faster",
        (Worse, Metric::Throughput | Metric::WallS, _) => "slower",
        (Gain, _, Better::Lower) => "lower, better",
        (Gain, ..) => "better",
        (Worse, ..) => "worse",
        (Different, ..) => "different",
        (NoDifference, ..) => "no difference",
        (TooFew, ..) => "too few rounds",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of a second on two vCPUs, each with a throughput and the metrics in `also`.
    fn cell(mode: &str, rates: &[f64], also: &[(Metric, f64)]) -> result::Cell {
        let sample = |(round, rate): (usize, &f64)| result::Sample {
            round,
            position: 0,
            start_s: 0.0,
            metrics: [(Metric::WallS, 1.0), (Metric::Throughput, *rate)]
                .iter()
                .chain(also)
                .copied()
                .collect(),
            timeline: Vec::new(),
        };
        result::Cell {
            mode: mode.into(),
            command: String::new(),
            samples: rates.iter().enumerate().map(sample).collect(),
            summaries: BTreeMap::new(),
        }
    }

    fn row_of(cells: Vec<result::Cell>) -> result::Row {
        let mut row = result::Row {
            name: "r".into(),
            unit: "requests".into(),
            primary: Metric::Throughput,
            workload: None,
            server: None,
            co_runners: Vec::new(),
            paper: BTreeMap::new(),
            paper_ratio: BTreeMap::new(),
            cells,
            comparisons: Vec::new(),
        };
        row.comparisons = comparisons(&row);
        row
    }

    fn warned(row: result::Row, precision: Option<f64>) -> Vec<String> {
        let asked = Rounds { least: 5, most: 10, precision };
        warnings(&[row], 2, asked).iter().map(Warning::to_string).collect()
    }

    const STEADY: [f64; 8] = [100.0, 101.0, 99.0, 100.5, 100.0, 99.5, 100.2, 99.8];

    #[test]
    fn modes_are_compared_with_the_first_one() {
        let fast = STEADY.map(|rate| rate * 2.0);
        let row = row_of(vec![cell("default", &STEADY, &[]), cell("x", &fast, &[])]);
        let comparison = row.comparison("x", Metric::Throughput).unwrap();
        assert!((comparison.ratio.median - 2.0).abs() < 1e-9);
        assert_eq!(comparison.verdict, result::Verdict::Better);
        assert_eq!(verdict(comparison), "faster");
        let wall = row.comparison("x", Metric::WallS).unwrap();
        assert_eq!(wall.verdict, result::Verdict::NoDifference);
        assert!(warned(row, None).is_empty());
    }

    #[test]
    fn system_throughput_is_the_mean_of_both_speeds() {
        let beside = |throughput| [(Metric::CoThroughput, throughput)];
        // The row gains a half, its co-runner loses a half: the total stays the same.
        let mut cells = vec![
            cell("default", &[90.0, 100.0, 110.0], &beside(50.0)),
            cell("x", &[150.0; 3], &beside(25.0)),
            cell("alone", &[100.0; 3], &[]),
        ];
        add_system_throughput(&mut cells, 1);
        assert_eq!(cells[0].values(Metric::SystemThroughput), [0.95, 1.0, 1.05]);
        assert_eq!(cells[1].values(Metric::SystemThroughput), [1.0; 3]);
        assert!(cells[2].values(Metric::SystemThroughput).is_empty());
        // Without a throughput, the speed is derived from the wall time.
        for sample in cells.iter_mut().flat_map(|cell| &mut cell.samples) {
            sample.metrics.remove(&Metric::Throughput);
        }
        add_system_throughput(&mut cells, 1);
        assert_eq!(cells[1].values(Metric::SystemThroughput), [0.75; 3]);
        add_system_throughput(&mut cells, 3);
        assert_eq!(cells[1].values(Metric::SystemThroughput), [0.625; 3], "the mean of four programs");
    }

    #[test]
    fn the_worst_sample_of_a_disturbed_cell_is_named() {
        let quiet = [(Metric::CpuBusyS, 0.5), (Metric::CpuUserS, 0.5)];
        let mut disturbed = cell("default", &STEADY, &quiet);
        disturbed.samples[3].metrics.insert(Metric::StealS, 0.5);
        disturbed.samples[4].metrics.insert(Metric::CpuBusyS, 0.9);
        let sentences = warned(row_of(vec![disturbed.clone()]), None);
        assert_eq!(sentences.len(), 2, "{sentences:?}");
        assert!(sentences[0].contains("round 4") && sentences[0].contains("25.0 %"), "{sentences:?}");
        assert!(sentences[1].contains("round 5") && sentences[1].contains("20.0 %"), "{sentences:?}");
        let mut row = row_of(vec![disturbed]);
        row.co_runners.push("matmul".into());
        assert_eq!(warned(row, None).len(), 1, "a co-runner is meant to be there");
    }

    #[test]
    fn outliers_drift_and_width_are_reported() {
        let mut values = STEADY;
        values[6] = 10.0;
        let sentences = warned(row_of(vec![cell("default", &values, &[])]), None);
        assert!(sentences.len() == 1 && sentences[0].contains("in round 7"), "{sentences:?}");
        let rising: Vec<f64> = (0..8).map(|round| 100.0 + 5.0 * f64::from(round)).collect();
        let sentences = warned(row_of(vec![cell("default", &rising, &[])]), Some(0.02));
        assert!(sentences.iter().any(|w| w.contains("drifts by +")), "{sentences:?}");
        assert!(sentences.iter().any(|w| w.contains("% wide, not 2.0 %")), "{sentences:?}");
        let sentences = warned(row_of(vec![cell("default", &[100.0, 10.0, 100.5], &[])]), None);
        assert!(sentences.len() == 1 && sentences[0].contains("3 rounds are too few"), "{sentences:?}");
    }
}
