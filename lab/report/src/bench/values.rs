//! Accessors for a row's values in one mode, in the units of the report.

use gleaner_proto::result::{BenchResult, Better, Comparison, Estimate, Metric, Row};

use crate::number::{Format, Unit};
use crate::plot::Interval;

/// The unit in which the report writes a metric, and the factor from the result's unit to it.
pub(super) fn unit(metric: Metric) -> (Unit, f64) {
    match metric.unit() {
        "s" => (Unit::Seconds, 1.0),
        "µs" => (Unit::Seconds, 1e-6),
        _ => (Unit::Plain, 1.0),
    }
}

/// Name of a row's metric including what it counts: `requests per second`, `p99 latency`.
pub(super) fn label(row: &Row, metric: Metric) -> String {
    let counted = if row.unit.is_empty() { "units" } else { &row.unit };
    match metric {
        Metric::Throughput => format!("{counted} per second"),
        Metric::Operations => format!("{counted} done"),
        Metric::CpuSPerOp if row.unit.is_empty() => "CPU time per run".to_owned(),
        Metric::CpuSPerOp => format!("CPU time per unit of work ({counted})"),
        _ if metric.unit() == "1/s" => format!("{} per second", metric.about()),
        _ => metric.about().to_owned(),
    }
}

/// A table cell; `None` is shown as a dash.
pub(super) fn cell(format: Format, value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format.full(value))
}

/// Number format for the medians of a row's metric; the same in all modes, so that they align.
pub(super) fn format(row: &Row, metric: Metric) -> Format {
    let (unit, factor) = unit(metric);
    let medians = row.cells.iter().filter_map(|cell| cell.summaries.get(&metric));
    let medians: Vec<f64> = medians.map(|estimate| estimate.median * factor).collect();
    let sizes = || medians.iter().map(|median| median.abs()).filter(|size| *size > 0.0);
    let smallest = sizes().fold(f64::INFINITY, f64::min);
    let largest = sizes().fold(0.0, f64::max);
    // Three digits for the smallest, but no more than six for the largest.
    let digits = |size: f64, n: i32| 10f64.powf(size.log10().floor()) * 10f64.powi(1 - n);
    if largest == 0.0 {
        return Format::new(unit, 0.0, 1.0);
    }
    Format::new(unit, smallest, digits(smallest, 3).max(digits(largest, 6)))
}

/// The estimate as an interval, multiplied by `factor`.
pub(super) fn interval(estimate: &Estimate, factor: f64) -> Interval {
    Interval { value: estimate.median * factor, low: estimate.low * factor, high: estimate.high * factor }
}

/// Times as fast as the baseline (or as good, for other metrics): the ratio if more is better, else its
/// inverse, so that above 1 is always better. `None` if that is not a positive number.
pub(super) fn gain(comparison: &Comparison) -> Option<Interval> {
    let Interval { value, low, high } = interval(&comparison.ratio, 1.0);
    let gain = if comparison.metric.better() == Better::Lower {
        Interval { value: 1.0 / value, low: 1.0 / high, high: 1.0 / low }
    } else {
        Interval { value, low, high }
    };
    [gain.value, gain.low, gain.high].iter().all(|end| *end > 0.0 && end.is_finite()).then_some(gain)
}

/// The row's modes except its baseline, each with its index in the result and its comparison by `metric`.
pub(super) fn compared<'a>(
    result: &'a BenchResult,
    row: &'a Row,
    metric: Metric,
) -> impl Iterator<Item = (usize, &'a Comparison)> {
    let modes = result.modes.iter().enumerate();
    modes.filter_map(move |(index, mode)| Some((index, row.comparison(&mode.name, metric)?)))
}

/// Name of the mode that all others are compared with.
pub(super) fn baseline(result: &BenchResult) -> &str {
    result.modes.first().map_or("default", |mode| mode.name.as_str())
}

/// The confidence level of an interval, for a sentence: `95 % interval`.
pub(super) fn confidence(estimate: &Estimate) -> String {
    format!("{:.0} % interval", estimate.confidence * 100.0)
}
