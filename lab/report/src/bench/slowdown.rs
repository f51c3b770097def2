//! Figures 1 and 2 of the Gleaner paper: slowdown against how often vCPUs become idle. The same machine with
//! its vCPUs kept awake stands in for bare metal.

use gleaner_proto::result::{BenchResult, Metric, ModeInfo, Row, correlation};

use super::values::{baseline, gain};
use crate::axis::Axis;
use crate::number::Unit;
use crate::page::Figure;
use crate::plot::{Point, Scatter};
use crate::scale::Kind;

/// Modes in which idle vCPUs do not halt, purest first: slower without them means slow due to wake-ups.
const AWAKE: [&str; 4] = ["idlepoll", "qos-poll", "haltpoll", "gleaner"];

/// Slowdown of the baseline against a mode that keeps vCPUs awake. Uses rows without co-runner, if any.
pub(super) fn alone(result: &BenchResult) -> Option<Figure> {
    let (base, awake) = (baseline(result), awake(result)?);
    let any_alone = result.rows.iter().any(|row| row.co_runners.is_empty());
    let rows = result.rows.iter().filter(|row| row.co_runners.is_empty() || !any_alone);
    let point = |row: &Row| Some((row.name.clone(), idle(row, base)?, slowdown(row, awake)?));
    scatter(&Texts {
        name: "slowdown-idle",
        title: format!("Slowdown of {base} against {} over idle frequency", awake.name),
        about: format!("the more often vCPUs become idle, the slower {base}"),
        x: format!("idle entries per second and vCPU, {base}"),
        y: format!("slowdown against {}", awake.name),
        caption: format!(
            "One point for each row. If halting costs the time, rows whose vCPUs become idle more often are slowed \
             down more; r is Pearson's correlation coefficient with its 95 % interval. Mode {} stands for a machine \
             that never halts.",
            awake.name
        ),
        points: rows.filter_map(point).map(|(label, x, y)| Point { label, x, y }).collect(),
    })
}

/// The spread of a command's slowdowns beside different co-runners, against how often vCPUs become idle when
/// it runs alone. Rows with the same command line belong to one command.
pub(super) fn variation(result: &BenchResult) -> Option<Figure> {
    let (base, awake) = (baseline(result), awake(result)?);
    let point = |row: &Row| {
        let command = &row.cell(base)?.command;
        let beside = result.rows.iter().filter(|other| {
            !other.co_runners.is_empty() && other.cell(base).is_some_and(|cell| cell.command == *command)
        });
        let slowdowns: Vec<f64> = beside.filter_map(|other| slowdown(other, awake)).collect();
        let most = slowdowns.iter().copied().reduce(f64::max)?;
        let least = slowdowns.iter().copied().reduce(f64::min)?;
        let idle = idle(row, base)?;
        (slowdowns.len() > 1).then(|| Point { label: row.name.clone(), x: idle, y: most - least })
    };
    scatter(&Texts {
        name: "variation-idle",
        title: format!("Variation of the slowdown of {base} by co-runner over idle frequency"),
        about: "the more often vCPUs become idle, the more depends on what runs beside".to_owned(),
        x: format!("idle entries per second and vCPU when run alone, {base}"),
        y: "difference of the slowdowns".to_owned(),
        caption: format!(
            "One point for each command: the difference between its slowdowns against {} beside different co-runners. \
             r is Pearson's correlation coefficient with its 95 % interval.",
            awake.name
        ),
        points: result.rows.iter().filter(|row| row.co_runners.is_empty()).filter_map(point).collect(),
    })
}

/// The texts in which the two figures differ.
struct Texts {
    name: &'static str,
    title: String,
    about: String,
    x: String,
    y: String,
    caption: String,
    points: Vec<Point>,
}

/// `None` if there are too few points for a correlation.
fn scatter(texts: &Texts) -> Option<Figure> {
    let fit = correlation(&texts.points.iter().map(|p| (p.x, p.y)).collect::<Vec<_>>())?;
    let note = format!("r = {:.2} [{:.2}, {:.2}], n = {}", fit.r, fit.low, fit.high, fit.n);
    let plot = Scatter {
        title: texts.title.clone(),
        about: format!("Scatter plot of the rows: {}; {note}.", texts.about),
        x: Axis::new(texts.x.clone(), Unit::Plain, Kind::Linear),
        y: Axis::new(texts.y.clone(), Unit::Ratio, Kind::Linear),
        points: texts.points.clone(),
        note,
        fit: true,
    };
    Some(Figure {
        name: texts.name.to_owned(),
        title: texts.title.clone(),
        caption: texts.caption.clone(),
        half: false,
        plot: Box::new(plot),
    })
}

fn awake(result: &BenchResult) -> Option<&ModeInfo> {
    AWAKE.iter().find_map(|kind| {
        result.modes.iter().skip(1).find(|mode| mode.name.split([':', '+']).next() == Some(kind))
    })
}

fn idle(row: &Row, base: &str) -> Option<f64> {
    Some(row.cell(base)?.summaries.get(&Metric::IdlePerS)?.median)
}

fn slowdown(row: &Row, awake: &ModeInfo) -> Option<f64> {
    Some(gain(row.comparison(&awake.name, row.primary)?)?.value)
}
