//! The table that `gleaner demo` prints, and its JSON form.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use gleaner_bench::stats::median;
use gleaner_bench::workload::Workload;
use serde::Serialize;

use super::Samples;
use super::child::Sample;
use gleaner_explain::OneLineSummary;
use gleaner_explain::wrap;

const VERSION: u32 = 2;
/// Shares of the vCPUs' time above which other programs are reported: over all runs, and in any one.
const OTHER_PROGRAMS_SHARE: (f64, f64) = (0.05, 0.2);

#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: u32,
    rounds: u16,
    seconds: f64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(super) struct Row {
    workload: &'static str,
    plain: Vec<Option<Sample>>,
    gleaner: Vec<Option<Sample>>,
    /// Ratio of operations per second.
    ratio: Option<Ratio>,
    /// Ratio of CPU time per operation.
    cpu_cost: Option<Ratio>,
    /// What Gleaner did in the last round, as a sentence.
    kept: String,
    /// Whether a trial of the last round proved a change.
    proven: bool,
    journal: PathBuf,
    failures: Vec<String>,
}

/// With Gleaner over plain, from the rounds in which both ran. The ratio of the medians matches the table's columns,
/// and always lies between the rounds' ratios.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Ratio {
    /// Plain, then with Gleaner.
    medians: (f64, f64),
    /// The second median over the first.
    of_medians: f64,
    /// Lowest ratio of a round.
    lowest: f64,
    /// Highest ratio of a round.
    highest: f64,
    /// Ratio of the last round.
    last: f64,
    /// Number of rounds.
    rounds: usize,
}

impl Ratio {
    /// From values by round; `None` if no round has both.
    fn new(plain: &[Option<f64>], gleaner: &[Option<f64>]) -> Option<Self> {
        let both = plain.iter().zip(gleaner).filter_map(|(plain, gleaner)| Some(((*plain)?, (*gleaner)?)));
        let (plain, gleaner): (Vec<f64>, Vec<f64>) = both.unzip();
        let ratios: Vec<f64> = plain.iter().zip(&gleaner).map(|(plain, gleaner)| gleaner / plain).collect();
        let medians = (median(&plain)?, median(&gleaner)?);
        Some(Self {
            medians,
            of_medians: medians.1 / medians.0,
            lowest: ratios.iter().copied().min_by(f64::total_cmp)?,
            highest: ratios.iter().copied().max_by(f64::total_cmp)?,
            last: ratios.last().copied()?,
            rounds: ratios.len(),
        })
    }
}

/// A single round has no range.
fn range(ratio: Option<&Ratio>) -> String {
    match ratio {
        None => "-".to_owned(),
        Some(ratio) if ratio.rounds < 2 => format!("{:.2}", ratio.of_medians),
        Some(ratio) => format!("{:.2} [{:.2}, {:.2}]", ratio.of_medians, ratio.lowest, ratio.highest),
    }
}

impl Row {
    pub(super) fn new(workload: Workload, samples: Samples, did: OneLineSummary, journal: PathBuf) -> Self {
        let of = |samples: &[Option<Sample>], value: fn(&Sample) -> f64| -> Vec<_> {
            samples.iter().map(|sample| sample.as_ref().map(value)).collect()
        };
        let ratio = |value| Ratio::new(&of(&samples.plain, value), &of(&samples.gleaner, value));
        Self {
            workload: workload.name(),
            ratio: ratio(|s| s.ops_per_s),
            cpu_cost: ratio(|s| s.cpu_s_per_op),
            plain: samples.plain,
            gleaner: samples.gleaner,
            kept: did.text,
            proven: did.proven,
            journal,
            failures: samples.failures,
        }
    }

    fn line(&self) -> String {
        let rate = |of: fn(&Ratio) -> f64| {
            self.ratio.as_ref().map_or_else(|| "-".to_owned(), |ratio| format!("{:.0}", of(ratio)))
        };
        let (plain, gleaner) = (rate(|r| r.medians.0), rate(|r| r.medians.1));
        let (ratio, cost) = (range(self.ratio.as_ref()), range(self.cpu_cost.as_ref()));
        format!("{:16} {plain:>9} {gleaner:>12}  {ratio:18}  {cost}", self.workload)
    }

    /// What Gleaner did in the last round, beside that round's ratio.
    fn last_round(&self) -> String {
        let Some(ratio) = &self.ratio else { return self.kept.clone() };
        // A trial compares blocks of a few milliseconds, so it does not see a loss between trials.
        let whole = match (self.proven, ratio.last < 1.0) {
            (true, true) => ", so what its trials saw in short blocks did not carry over",
            _ => "",
        };
        format!("{:.2} times as fast as plain{whole}; {}", ratio.last, self.kept)
    }
}

impl Report {
    pub(super) fn new(rounds: u16, time: Duration, rows: Vec<Row>) -> Self {
        Self { version: VERSION, rounds, seconds: time.as_secs_f64(), rows }
    }

    /// Every failed run, as a sentence.
    pub(super) fn failures(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().flat_map(|row| &row.failures).map(String::as_str)
    }

    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "{}\n\n{:16} {:>9} {:>12}  {:18}  {}\n",
            self.head(),
            "workload",
            "ops/s",
            "with Gleaner",
            "times as fast",
            "CPU cost per op"
        );
        for row in &self.rows {
            let _ = writeln!(out, "{}", row.line().trim_end());
        }
        if let Some(others) = self.others() {
            let _ = writeln!(out);
            wrap(&mut out, "", &others);
        }
        let _ = writeln!(out, "\nWhat Gleaner did in the last round (all of it: gleaner why FILE):");
        for row in &self.rows {
            let _ = writeln!(out, "  {}", row.workload);
            wrap(&mut out, "    ", &row.last_round());
            let _ = writeln!(out, "    {}", row.journal.display());
        }
        out
    }

    fn head(&self) -> String {
        let Self { rounds, seconds, .. } = self;
        if *rounds == 1 {
            return format!("One round of {seconds:.1} s, so how far it varies is not known");
        }
        format!("Medians of {rounds} rounds of {seconds:.1} s; their ratios [lowest, highest of a round]")
    }

    /// A warning that other programs kept the machine busy, with the remedy.
    fn others(&self) -> Option<String> {
        let samples = self.rows.iter().flat_map(|row| row.plain.iter().chain(&row.gleaner)).flatten();
        let shares: Vec<f64> = samples.filter_map(|sample| sample.others).collect();
        let most = shares.iter().copied().max_by(f64::total_cmp)?;
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        (mean > OTHER_PROGRAMS_SHARE.0 || most > OTHER_PROGRAMS_SHARE.1).then(|| {
            format!(
                "The machine was busy: other programs took {:.0} % of its vCPUs' time, in one run {:.0} %. Expect other \
                 numbers from `gleaner demo` when it is idle.",
                mean * 100.0,
                most * 100.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_explain::WIDTH;

    fn samples(rates: &[f64]) -> Vec<Option<Sample>> {
        let sample =
            |rate: &f64| Some(Sample { ops_per_s: *rate, cpu_s_per_op: 1.0 / rate, others: Some(0.0) });
        rates.iter().map(sample).collect()
    }

    fn row(plain: &[f64], gleaner: &[f64]) -> Row {
        let samples = Samples { plain: samples(plain), gleaner: samples(gleaner), failures: Vec::new() };
        Row::new(Workload::RequestResponse, samples, OneLineSummary::of("kept"), "/run/j".into())
    }

    fn text(row: Row) -> String {
        Report::new(u16::try_from(row.plain.len()).unwrap(), Duration::from_secs(2), vec![row]).text()
    }

    #[test]
    fn the_table_fits() {
        let row = row(&[100_000.0, 200_000.0, 400_000.0], &[200_000.0, 400_000.0, 800_000.0]);
        assert!(row.line().contains("2.00 [2.00, 2.00]   0.50 [0.50, 0.50]"), "{}", row.line());
        let text = text(row);
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.starts_with("Medians of 3 rounds of 2.0 s"), "{text}");
        assert!(
            text.contains("request-response\n    2.00 times as fast as plain; kept\n    /run/j\n"),
            "{text}"
        );
    }

    #[test]
    fn the_ratio_is_that_of_the_rates_shown_and_within_its_rounds() {
        // The median of the rounds' ratios is 0.97 although the rate rises.
        let row = row(&[100.0, 100.0, 120.0, 90.0, 80.0], &[97.0, 150.0, 115.0, 87.0, 130.0]);
        let ratio = row.ratio.unwrap();
        assert_eq!(ratio.medians, (100.0, 115.0));
        assert!((ratio.of_medians - 1.15).abs() < 1e-9, "{ratio:?}");
        assert!(row.line().contains("100          115  1.15 [0.96, 1.62]"), "{}", row.line());
    }

    #[test]
    fn one_round_has_no_interval() {
        let text = text(row(&[100.0], &[126.0]));
        assert!(text.contains(" 1.26 ") && !text.contains('['), "{text}");
        assert!(text.starts_with("One round of 2.0 s"), "{text}");
    }

    #[test]
    fn only_rounds_that_have_both_count() {
        let mut samples =
            Samples { plain: samples(&[1.0, 100.0]), gleaner: samples(&[50.0, 110.0]), failures: Vec::new() };
        samples.gleaner[0] = None;
        let row = Row::new(Workload::Compute, samples, OneLineSummary::of(""), PathBuf::new());
        assert!(row.line().contains("100          110  1.10 "), "{}", row.line());
    }

    #[test]
    fn what_a_trial_proved_stands_beside_what_became_of_the_round() {
        let proven = |gleaner| {
            let mut row = row(&[100.0], &[gleaner]);
            (row.kept, row.proven) = ("best trial: 2.29 times as many bytes".to_owned(), true);
            row.last_round()
        };
        assert_eq!(proven(240.0), "2.40 times as fast as plain; best trial: 2.29 times as many bytes");
        assert_eq!(
            proven(97.0),
            "0.97 times as fast as plain, so what its trials saw in short blocks did not carry over; best trial: \
             2.29 times as many bytes"
        );
    }

    #[test]
    fn a_busy_machine_is_said_to_be_one() {
        assert!(!text(row(&[1.0], &[1.0])).contains("busy"));
        let expanded = |text: String| text.replace('\n', " ");
        let mut disturbed = row(&[1.0], &[1.0]);
        disturbed.plain[0].as_mut().unwrap().others = Some(0.5);
        let message = expanded(text(disturbed));
        assert!(message.contains("25 % of its vCPUs' time, in one run 50 %"), "{message}");
        let mut short = row(&[1.0], &[1.0]);
        short.plain[0].as_mut().unwrap().others = None;
        assert!(!text(short).contains("busy"));
    }

    #[test]
    fn what_failed_is_a_dash_and_named() {
        let samples =
            Samples { plain: samples(&[1.0]), gleaner: vec![None], failures: vec!["it broke".into()] };
        let row = Row::new(Workload::Compute, samples, OneLineSummary::of(""), PathBuf::new());
        assert!(row.line().ends_with("-                   -"), "{}", row.line());
        assert_eq!(Report::new(1, Duration::ZERO, vec![row]).failures().collect::<Vec<_>>(), ["it broke"]);
    }
}
