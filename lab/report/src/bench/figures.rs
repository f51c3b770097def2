//! The figures of a result.

use gleaner_proto::result::{BenchResult, Cell, Comparison, Metric, Moment, Row, Sample, Verdict};

use super::slowdown;
use super::values::{baseline, compared, confidence, gain, interval, label, unit};
use crate::axis::Axis;
use crate::number::{Unit, show};
use crate::page::Figure;
use crate::plot::{Bar, BarGroup, Bars, Curve, Curves, Interval, Lane, Span, Strip, StripLane, Timeline};
use crate::scale::Kind;

/// Latency percentiles, each with the share of requests at or below it.
const PERCENTILES: [(Metric, f64); 5] = [
    (Metric::P50Us, 0.5),
    (Metric::P90Us, 0.9),
    (Metric::P95Us, 0.95),
    (Metric::P99Us, 0.99),
    (Metric::P999Us, 0.999),
];

/// Kinds of figures, in page order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Speed,
    Slowdown,
    Cost,
    Latency,
    Samples,
    Timeline,
}

/// Every figure that the result has data for.
pub(super) fn figures(result: &BenchResult) -> Vec<(Subject, Figure)> {
    let mut figures = Vec::new();
    figures.extend(speed(result).map(|figure| (Subject::Speed, figure)));
    figures.extend(slowdown::alone(result).map(|figure| (Subject::Slowdown, figure)));
    figures.extend(slowdown::variation(result).map(|figure| (Subject::Slowdown, figure)));
    figures.extend(cost(result).map(|figure| (Subject::Cost, figure)));
    for (number, row) in (1..).zip(&result.rows) {
        figures.extend(latency(result, row, number).map(|figure| (Subject::Latency, figure)));
        figures.extend(samples(result, row, number).map(|figure| (Subject::Samples, figure)));
        figures.extend(timelines(result, row, number).into_iter().map(|figure| (Subject::Timeline, figure)));
    }
    figures
}

fn speed(result: &BenchResult) -> Option<Figure> {
    let base = baseline(result);
    let title = format!("Speed relative to {base}");
    let bars = ratio_bars(result, |row| row.primary, gain);
    let plot = Bars {
        title: title.clone(),
        about: format!(
            "Bars: the speed-up of each mode over {base}, by the primary metric of each row, with intervals."
        ),
        axis: Axis::new("times as fast (further right is better)", Unit::Ratio, Kind::Log),
        reference: 1.0,
        reference_label: format!("{base} = 1"),
        groups: bars?,
    };
    Some(Figure {
        name: "speed".to_owned(),
        title,
        caption: format!(
            "Ratio of throughput, or inverse ratio of time, paired by round; the whisker is the interval. Pale bars: \
             no difference from {base} is established. Logarithmic, so that twice and half are equally far from 1."
        ),
        half: false,
        plot: Box::new(plot),
    })
}

fn cost(result: &BenchResult) -> Option<Figure> {
    let base = baseline(result);
    let title = format!("CPU time per unit of work, relative to {base}");
    let bars = ratio_bars(result, |_| Metric::CpuSPerOp, |c| Some(interval(&c.ratio, 1.0)));
    let plot = Bars {
        title: title.clone(),
        about: format!(
            "Bars: CPU time for the same work, polling included, as a ratio to {base}, with intervals."
        ),
        axis: Axis::new("times the CPU time (further left is better)", Unit::Ratio, Kind::Log),
        reference: 1.0,
        reference_label: format!("{base} = 1"),
        groups: bars?,
    };
    Some(Figure {
        name: "cost".to_owned(),
        title,
        caption: "User, system, polling and Gleaner's own CPU time for one unit of work. Polling uses a physical CPU \
                  that nobody else gets: this is the price of speed."
            .to_owned(),
        half: false,
        plot: Box::new(plot),
    })
}

/// One group per row, one bar per mode; `None` if no row has any.
fn ratio_bars(
    result: &BenchResult,
    metric: impl Fn(&Row) -> Metric,
    value: impl Fn(&Comparison) -> Option<Interval>,
) -> Option<Vec<BarGroup>> {
    let group = |row: &Row| {
        let bars: Vec<Bar> = compared(result, row, metric(row))
            .map(|(series, comparison)| bar(series, comparison, value(comparison)))
            .collect();
        (!bars.is_empty()).then(|| BarGroup { label: row.name.clone(), bars })
    };
    let groups: Vec<BarGroup> = result.rows.iter().filter_map(group).collect();
    (!groups.is_empty()).then_some(groups)
}

fn bar(series: usize, comparison: &Comparison, shown: Option<Interval>) -> Bar {
    let ratio = |value| show(Unit::Ratio, value);
    let note = shown.map_or_else(String::new, |i| {
        let interval = confidence(&comparison.ratio);
        format!("{}: {} ({interval} {} to {})", comparison.mode, ratio(i.value), ratio(i.low), ratio(i.high))
    });
    let unsure = matches!(comparison.verdict, Verdict::NoDifference | Verdict::TooFew);
    Bar { label: comparison.mode.clone(), series, interval: shown, unsure, note }
}

fn latency(result: &BenchResult, row: &Row, number: usize) -> Option<Figure> {
    let curve = |(series, cell): (usize, &Cell)| {
        let point =
            |(metric, share): &(Metric, f64)| Some((cell.summaries.get(metric)?.median * 1e-6, *share));
        let points: Vec<(f64, f64)> = PERCENTILES.iter().filter_map(point).collect();
        (points.len() >= 2).then(|| Curve { label: cell.mode.clone(), series, points, marks: true })
    };
    let curves: Vec<Curve> = cells(result, row).filter_map(curve).collect();
    let title = format!("Latency: {}", row.name);
    (!curves.is_empty()).then(|| Figure {
        name: format!("latency-{number}"),
        title: title.clone(),
        caption: "Medians over the rounds of the percentiles that the program prints; nothing is known between the \
                  marks. Each further nine has the same room, so that the tail can be read."
            .to_owned(),
        half: false,
        plot: Box::new(Curves {
            title,
            about: "Lines: the share of operations that were at most as slow, by mode.".to_owned(),
            x: Axis::new("latency", Unit::Seconds, Kind::Log),
            y: Axis::new("share of operations at most as slow", Unit::Share, Kind::Nines),
            curves,
        }),
    })
}

fn samples(result: &BenchResult, row: &Row, number: usize) -> Option<Figure> {
    let (unit, factor) = unit(row.primary);
    let lane = |(series, cell): (usize, &Cell)| StripLane {
        label: cell.mode.clone(),
        series,
        values: cell.values(row.primary).iter().map(|value| value * factor).collect(),
        middle: cell.summaries.get(&row.primary).map(|estimate| interval(estimate, factor)),
    };
    let lanes: Vec<StripLane> = cells(result, row).map(lane).collect();
    let any = lanes.iter().any(|lane| !lane.values.is_empty());
    any.then(|| Figure {
        name: format!("samples-{number}"),
        title: row.name.clone(),
        caption: String::new(),
        half: true,
        plot: Box::new(Strip {
            title: format!("Samples: {}", row.name),
            about: format!(
                "Dots: every sample of {} by mode, with median and interval.",
                label(row, row.primary)
            ),
            axis: Axis::new(label(row, row.primary), unit, Kind::Linear),
            lanes,
        }),
    })
}

/// The row's cells in the order of the result's modes, each with its index among them.
fn cells<'a>(result: &'a BenchResult, row: &'a Row) -> impl Iterator<Item = (usize, &'a Cell)> {
    let modes = result.modes.iter().enumerate();
    modes.filter_map(|(index, mode)| Some((index, row.cell(&mode.name)?)))
}

fn timelines(result: &BenchResult, row: &Row, number: usize) -> Vec<Figure> {
    let with = |(series, cell): (usize, &Cell)| {
        let sample = typical(cell, row.primary)?;
        Some(Figure {
            name: format!("timeline-{number}-{series}"),
            title: format!("{}, {}, round {}", row.name, cell.mode, sample.round + 1),
            caption: String::new(),
            half: false,
            plot: Box::new(timeline(row, cell, sample)),
        })
    };
    cells(result, row).filter_map(with).collect()
}

/// Among the samples in which a setting changed, the one whose primary metric is closest to the median.
fn typical(cell: &Cell, metric: Metric) -> Option<&Sample> {
    let median = cell.summaries.get(&metric)?.median;
    let distance =
        |sample: &Sample| sample.metrics.get(&metric).map_or(f64::INFINITY, |v| (v - median).abs());
    let changing = cell.samples.iter().filter(|sample| sample.timeline.len() > 1);
    changing.min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

fn timeline(row: &Row, cell: &Cell, sample: &Sample) -> Timeline {
    let moments = &sample.timeline;
    let last = moments.last().map_or(0.0, |moment| moment.at_s);
    let end_s = sample.metrics.get(&Metric::WallS).copied().unwrap_or(last).max(last);
    let changes = moments.iter().skip(1).map(|moment| moment.at_s).chain([end_s]);
    let held: Vec<(Span, &str)> = moments
        .iter()
        .zip(changes)
        .map(|(moment, to_s)| (Span { from_s: moment.at_s, to_s }, moment.retention.as_str()))
        .collect();
    let mut methods: Vec<&str> = held.iter().map(|(_, method)| *method).collect();
    methods.sort_unstable();
    methods.dedup();
    let steps = |label: &str, series, unit, value: &dyn Fn(&Moment) -> f64| Lane::Steps {
        label: label.to_owned(),
        series,
        unit,
        points: moments.iter().map(|moment| (moment.at_s, value(moment))).collect(),
    };
    let mut lanes = vec![steps("active vCPUs", 1, Unit::Plain, &|moment| moment.active_vcpus as f64)];
    for method in methods {
        let spans = held.iter().filter(|(_, other)| *other == method).map(|(span, _)| *span).collect();
        lanes.push(Lane::Spans {
            label: method.to_owned(),
            series: usize::from(method != "halt") * 2,
            spans,
        });
    }
    if moments.iter().any(|moment| moment.limit_us > 0.0) {
        lanes.push(steps("poll limit", 3, Unit::Seconds, &|moment| moment.limit_us * 1e-6));
    }
    Timeline {
        title: format!("Timeline: {}, {}", row.name, cell.mode),
        about: format!(
            "Which vCPUs were active and how idle ones were retained during round {} of {} in mode {}.",
            sample.round + 1,
            row.name,
            cell.mode
        ),
        time: "time since the command started".to_owned(),
        end_s,
        lanes,
    }
}
