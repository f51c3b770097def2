//! The table that `gleaner demo` prints, and its JSON form.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use gleaner_bench::stats::{Estimate, median, paired_ratio};
use gleaner_bench::workload::Workload;
use serde::Serialize;

use super::Samples;
use super::child::Sample;

const VERSION: u32 = 1;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: u32,
    rounds: u16,
    seconds: f64,
    rows: Vec<Row>,
}

/// One workload. Ratios are with Gleaner over without, paired by round.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    workload: &'static str,
    plain: Vec<Option<Sample>>,
    gleaner: Vec<Option<Sample>>,
    ratio: Option<Estimate>,
    cpu_cost: Option<Estimate>,
    kept: String,
    journal: PathBuf,
    failures: Vec<String>,
}

impl Row {
    pub(super) fn new(workload: Workload, samples: Samples, kept: String, journal: PathBuf) -> Self {
        let of = |samples: &[Option<Sample>], value: fn(&Sample) -> f64| -> Vec<_> {
            samples.iter().map(|sample| sample.as_ref().map(value)).collect()
        };
        let ratio = |value| paired_ratio(&of(&samples.gleaner, value), &of(&samples.plain, value));
        Self {
            workload: workload.name(),
            ratio: ratio(|s| s.ops_per_s),
            cpu_cost: ratio(|s| s.cpu_s_per_op),
            plain: samples.plain,
            gleaner: samples.gleaner,
            kept,
            journal,
            failures: samples.failures,
        }
    }

    fn line(&self) -> String {
        let rate = |samples: &[Option<Sample>]| {
            let values: Vec<_> = samples.iter().flatten().map(|s| s.ops_per_s).collect();
            median(&values).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"))
        };
        let (ratio, cost) = (estimate(self.ratio.as_ref()), estimate(self.cpu_cost.as_ref()));
        let (plain, gleaner) = (rate(&self.plain), rate(&self.gleaner));
        format!("{:16} {plain:>9} {gleaner:>12}  {ratio:18}  {cost}", self.workload)
    }
}

fn estimate(value: Option<&Estimate>) -> String {
    value.map_or_else(|| "-".to_owned(), |e| format!("{:.2} [{:.2}, {:.2}]", e.median, e.low, e.high))
}

impl Report {
    pub(super) fn new(rounds: u16, time: Duration, rows: Vec<Row>) -> Self {
        Self { version: VERSION, rounds, seconds: time.as_secs_f64(), rows }
    }

    /// Every run that failed, as a sentence.
    pub(super) fn failures(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().flat_map(|row| &row.failures).map(String::as_str)
    }

    /// The table, and what was kept for each workload.
    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "Medians of {} rounds of {:.1} s, ratios with their 95 % intervals\n\n{:16} {:>9} {:>12}  {:18}  {}\n",
            self.rounds,
            self.seconds,
            "workload",
            "ops/s",
            "with Gleaner",
            "times as much",
            "CPU cost per op"
        );
        for row in &self.rows {
            let _ = writeln!(out, "{}", row.line());
        }
        let _ = writeln!(out, "\nWhat Gleaner did in the last round (all of it: gleaner why FILE):");
        for row in &self.rows {
            let _ = writeln!(out, "  {}: {}\n    {}", row.workload, row.kept, row.journal.display());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rates: &[f64]) -> Vec<Option<Sample>> {
        rates.iter().map(|rate| Some(Sample { ops_per_s: *rate, cpu_s_per_op: 1.0 / rate })).collect()
    }

    #[test]
    fn ratios_are_paired_by_round_and_the_table_fits() {
        let samples = Samples {
            plain: samples(&[100_000.0, 200_000.0, 400_000.0]),
            gleaner: samples(&[200_000.0, 400_000.0, 800_000.0]),
            failures: Vec::new(),
        };
        let row = Row::new(Workload::RequestResponse, samples, "kept".into(), "/run/j".into());
        assert!(row.line().contains("2.00 [2.00, 2.00]   0.50 [0.50, 0.50]"), "{}", row.line());
        assert!(row.line().len() <= 80, "{}", row.line());
        let report = Report::new(3, Duration::from_secs(2), vec![row]);
        assert_eq!(report.failures().count(), 0);
        assert!(report.text().contains("request-response: kept"), "{}", report.text());
    }

    #[test]
    fn what_failed_is_a_dash_and_named() {
        let samples =
            Samples { plain: samples(&[1.0]), gleaner: vec![None], failures: vec!["it broke".into()] };
        let row = Row::new(Workload::Compute, samples, String::new(), PathBuf::new());
        assert!(row.line().ends_with("-                   -"), "{}", row.line());
        assert_eq!(Report::new(1, Duration::ZERO, vec![row]).failures().collect::<Vec<_>>(), ["it broke"]);
    }
}
