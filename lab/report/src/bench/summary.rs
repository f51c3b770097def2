//! What a result shows, in sentences.

use gleaner_proto::result::{BenchResult, Better, Comparison, Ending, Metric, Row, Verdict};

use super::values::{baseline, confidence, gain};
use crate::number::{Unit, bare};
use crate::plot::Interval;

/// How often a mode was better, worse or neither, by each row's primary metric.
#[derive(Debug, Default)]
pub(super) struct Tally<'a> {
    pub(super) better: Vec<&'a Row>,
    pub(super) worse: Vec<&'a Row>,
    pub(super) same: Vec<&'a Row>,
    pub(super) unknown: Vec<&'a Row>,
}

/// Counts the verdicts on `mode`.
pub(super) fn tally<'a>(result: &'a BenchResult, mode: &str) -> Tally<'a> {
    let mut tally = Tally::default();
    for row in &result.rows {
        match row.comparison(mode, row.primary).map(|comparison| comparison.verdict) {
            Some(Verdict::Better) => tally.better.push(row),
            Some(Verdict::Worse) => tally.worse.push(row),
            Some(Verdict::NoDifference) => tally.same.push(row),
            Some(Verdict::Different | Verdict::TooFew) => tally.unknown.push(row),
            None => {}
        }
    }
    tally
}

/// The mode that the summary is about: Gleaner if present, else the first one after the baseline.
fn hero(result: &BenchResult) -> Option<&str> {
    let others = || result.modes.iter().skip(1).map(|mode| mode.name.as_str());
    others().find(|mode| *mode == "gleaner").or_else(|| others().next())
}

/// The row among `rows` where `mode` gained most (if `most`) or least, with its comparison and gain.
pub(super) fn extreme<'a>(
    rows: &[&'a Row],
    mode: &str,
    most: bool,
) -> Option<(&'a Row, &'a Comparison, Interval)> {
    let gains = rows.iter().filter_map(|row| {
        let comparison = row.comparison(mode, row.primary)?;
        Some((*row, comparison, gain(comparison)?))
    });
    if most {
        gains.max_by(|a, b| a.2.value.total_cmp(&b.2.value))
    } else {
        gains.min_by(|a, b| a.2.value.total_cmp(&b.2.value))
    }
}

/// What was measured.
pub(super) fn measured(result: &BenchResult) -> String {
    let rounds = result.rows.iter().flat_map(|row| &row.cells).map(|cell| cell.samples.len());
    let (fewest, most) = (rounds.clone().min().unwrap_or(0), rounds.max().unwrap_or(0));
    let rounds = if fewest == most { format!("{most}") } else { format!("{fewest} to {most}") };
    let commands = count(result.rows.len(), "program", "programs");
    let modes = count(result.modes.len(), "mode", "modes");
    format!("{commands} in {modes}, {rounds} {} each, interleaved.", plural(most, "sample", "samples"))
}

/// What won, by how much, and where it lost.
pub(super) fn outcome(result: &BenchResult) -> String {
    let base = baseline(result);
    let Some(mode) = hero(result) else {
        return format!("Only the mode {base} was measured, so nothing is compared.");
    };
    let Tally { better, worse, same, unknown } = tally(result, mode);
    let rows = better.len() + worse.len() + same.len() + unknown.len();
    if rows == 0 {
        return format!("No row was measured both in {base} and in {mode}, so nothing is compared.");
    }
    let mut sentences = Vec::new();
    if better.is_empty() && worse.is_empty() && unknown.is_empty() {
        sentences.push(format!("No difference between {mode} and {base} was found in {}.", names(&same)));
    } else if rows > 1 && better.len() + worse.len() > 0 {
        let lost = if worse.is_empty() { "none".to_owned() } else { worse.len().to_string() };
        sentences.push(format!(
            "Mode {mode} was better than {base} in {} of {rows} rows and worse in {lost}.",
            better.len()
        ));
    }
    let start = |text| if rows == 1 { "" } else { text };
    if let Some(found) = extreme(&better, mode, true) {
        sentences.push(sentence(start("Most in "), mode, base, found));
    }
    if let Some(found) = extreme(&worse, mode, false) {
        sentences.push(sentence(start("It lost most in "), mode, base, found));
    }
    if !same.is_empty() && same.len() < rows {
        sentences.push(format!("No difference was found in {}.", names(&same)));
    }
    if !unknown.is_empty() {
        sentences.push(format!("The samples are too few to judge {}.", names(&unknown)));
    }
    sentences.join(" ")
}

fn sentence(
    start: &str,
    mode: &str,
    base: &str,
    (row, comparison, gain): (&Row, &Comparison, Interval),
) -> String {
    let ratio = bare(Unit::Ratio, comparison.ratio.median);
    let what = match row.primary {
        Metric::Throughput if !row.unit.is_empty() => {
            format!("{ratio} times as many {} per second", row.unit)
        }
        metric => format!("{ratio} times the {}", metric.about()),
    };
    // A lower time is a higher speed; the sentence gives both.
    let speed = if row.primary.better() == Better::Lower {
        format!(", {} times as fast", bare(Unit::Ratio, gain.value))
    } else {
        String::new()
    };
    format!(
        "{start}{}: {what} in {mode} as in {base} ({} {} to {}){speed}.",
        row.name,
        confidence(&comparison.ratio),
        bare(Unit::Ratio, comparison.ratio.low),
        bare(Unit::Ratio, comparison.ratio.high)
    )
}

/// How the run ended, if not as planned.
pub(super) fn ending(result: &BenchResult) -> Option<(&'static str, String)> {
    match &result.ending {
        Ending::Complete => None,
        Ending::Interrupted => Some((
            "Interrupted.",
            "The run was ended by a signal; this is what was measured until then.".to_owned(),
        )),
        Ending::Failed { row, mode, round, message } => {
            let when =
                round.map_or_else(|| "during warm-up".to_owned(), |round| format!("in round {}", round + 1));
            let text =
                format!("{row} in mode {mode} failed {when}: {message} The numbers are those until then.");
            Some(("Failed.", text))
        }
    }
}

fn names(rows: &[&Row]) -> String {
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    match names.as_slice() {
        [] => "no row".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] if first.len() < 5 => format!("{} and {last}", first.join(", ")),
        many => count(many.len(), "row", "rows"),
    }
}

fn plural<'a>(n: usize, one: &'a str, more: &'a str) -> &'a str {
    if n == 1 { one } else { more }
}

fn count(n: usize, one: &str, more: &str) -> String {
    format!("{n} {}", plural(n, one, more))
}
