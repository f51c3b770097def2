//! Metrics in a program's output, found by the user's regular expressions.

use std::collections::BTreeMap;

use gleaner_proto::result::Metric;
use regex::Regex;

use crate::workload::Outcome;

/// Lines shown of an output without a match.
const SHOWN_LINES: usize = 8;

/// A regular expression whose named groups are metrics, e.g. `tps = (?<throughput>[0-9.]+)`.
#[derive(Debug, Clone)]
pub struct Expression {
    regex: Regex,
    /// The named groups: name, metric, and factor to the metric's unit.
    groups: Vec<(String, Metric, f64)>,
}

/// Why an expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// Not a regular expression.
    #[error("not a regular expression: {0}")]
    Syntax(String),
    /// It has no named group.
    #[error("no named group, such as (?<throughput>[0-9.]+)")]
    NoGroup,
    /// The name of a group is not a metric.
    #[error("unknown metric `{0}`")]
    UnknownMetric(String),
}

/// An expression found nothing in an output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{expression}` {what}; the output starts with: {start}")]
pub struct NoMatch {
    expression: String,
    what: String,
    start: String,
}

impl Expression {
    /// Parses `text`. Groups are named after metrics; a latency can have another unit, e.g. `p99_ms`.
    ///
    /// # Errors
    /// See [`ExpressionError`].
    pub fn new(text: &str) -> Result<Self, ExpressionError> {
        let regex =
            Regex::new(text).map_err(|error| ExpressionError::Syntax(last_line(&error.to_string())))?;
        let names = regex.capture_names().flatten();
        let groups = names.map(|name| {
            let (metric, scale) =
                metric(name).ok_or_else(|| ExpressionError::UnknownMetric(name.to_owned()))?;
            Ok((name.to_owned(), metric, scale))
        });
        let groups: Vec<_> = groups.collect::<Result<_, _>>()?;
        if groups.is_empty() { Err(ExpressionError::NoGroup) } else { Ok(Self { regex, groups }) }
    }

    /// The metrics that it extracts.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        self.groups.iter().map(|(_, metric, _)| *metric)
    }

    /// The numbers in `output`. Uses the last match, since programs print their summary last.
    ///
    /// # Errors
    /// [`NoMatch`] with the first lines of the output.
    pub fn find(&self, output: &str) -> Result<BTreeMap<Metric, f64>, NoMatch> {
        let no_match =
            |what: String| NoMatch { expression: self.regex.as_str().to_owned(), what, start: start(output) };
        let found = self.regex.captures_iter(output).last();
        let found = found.ok_or_else(|| no_match("never matches".to_owned()))?;
        let mut metrics = BTreeMap::new();
        for (name, metric, scale) in &self.groups {
            // The group belongs to an alternative that did not match.
            let Some(text) = found.name(name) else { continue };
            let number = text.as_str().replace(',', "").parse::<f64>().ok().filter(|n| n.is_finite());
            let number =
                number.ok_or_else(|| no_match(format!("finds `{}`, which is no number", text.as_str())))?;
            metrics.insert(*metric, number * scale);
        }
        Ok(metrics)
    }
}

/// Parses a built-in workload's outcome, the last line of its output.
pub(crate) fn workload_outcome(output: &str) -> Result<Outcome, NoMatch> {
    let outcome = output.lines().next_back().and_then(|line| serde_json::from_str::<Outcome>(line).ok());
    outcome.ok_or_else(|| NoMatch {
        expression: "the outcome of a workload".to_owned(),
        what: "is not in the last line".to_owned(),
        start: start(output),
    })
}

/// The same as metrics.
pub(super) fn outcome(output: &str) -> Result<BTreeMap<Metric, f64>, NoMatch> {
    let outcome = workload_outcome(output)?;
    let operations = (Metric::Operations, outcome.operations as f64);
    Ok([(Metric::Throughput, outcome.throughput()), operations].into())
}

/// The metric for a group's name, and the factor to the metric's unit.
fn metric(name: &str) -> Option<(Metric, f64)> {
    if let Ok(metric) = name.parse() {
        return Some((metric, 1.0));
    }
    let (base, unit) = name.rsplit_once('_')?;
    let scale = match unit {
        "ns" => 1e-3,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some((format!("{base}_us").parse().ok()?, scale))
}

/// The first lines of an output, joined into one.
fn start(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return "(nothing)".to_owned();
    }
    let shown = lines[..lines.len().min(SHOWN_LINES)].join(" / ");
    if lines.len() > SHOWN_LINES { shown + " / …" } else { shown }
}

/// The regex crate's message spans several lines with a diagram; the last one states the error.
fn last_line(message: &str) -> String {
    let line = message.lines().next_back().unwrap_or(message);
    line.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_counts_and_units_are_scaled() {
        let expression = Expression::new(r"tps: (?<throughput>[0-9.,]+) 99%: (?<p99_ms>[0-9.]+)ms").unwrap();
        let output = "tps: 1.5 99%: 9ms\nsummary\ntps: 1,234.5 99%: 0.25ms\n";
        let expected = BTreeMap::from([(Metric::Throughput, 1234.5), (Metric::P99Us, 250.0)]);
        assert_eq!(expression.find(output).unwrap(), expected);
        let wall = Expression::new(r"took (?<wall_s>\d+)").unwrap();
        assert_eq!(wall.find("took 3").unwrap(), [(Metric::WallS, 3.0)].into());
    }

    #[test]
    fn an_output_without_a_match_is_shown() {
        let expression = Expression::new(r"tps: (?<throughput>\S+)").unwrap();
        let error = expression.find("usage: x\n\n  --help\n").unwrap_err().to_string();
        assert!(error.contains("never matches") && error.ends_with("usage: x / --help"), "{error}");
        let error = expression.find("tps: fast").unwrap_err().to_string();
        assert!(error.contains("finds `fast`"), "{error}");
        assert!(expression.find("").unwrap_err().to_string().ends_with("(nothing)"));
        let many = "line\n".repeat(100);
        assert!(expression.find(&many).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn expressions_that_cannot_work_are_refused() {
        let error = |text| Expression::new(text).unwrap_err();
        assert!(matches!(error("(?<throughput>"), ExpressionError::Syntax(_)));
        assert_eq!(error("tps: (.*)"), ExpressionError::NoGroup);
        assert_eq!(error("(?<tps>.*)"), ExpressionError::UnknownMetric("tps".into()));
        assert_eq!(error("(?<p42_ms>.*)"), ExpressionError::UnknownMetric("p42_ms".into()));
    }
}
