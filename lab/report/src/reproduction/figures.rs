//! A paper's figures as plots.

use super::data::{self, Chart, Found, Kind as ValueKind, Quantity, Reproduction, Row, State};
use gleaner_proto::result::correlation;

use crate::axis::Axis;
use crate::number::{Unit, show};
use crate::page::Figure;
use crate::plot::{Bar, BarGroup, Bars, Curve, Curves, Interval, Plot, Point, Scatter};
use crate::scale::Kind;

/// The deviation of the numbers, then the paper's figures.
pub(super) fn of(paper: &Reproduction) -> Vec<Figure> {
    let own = paper.figures.iter().map(|figure| drawn(paper, figure));
    errors(paper).into_iter().chain(own).collect()
}

/// Each simulated number against the paper's.
fn errors(paper: &Reproduction) -> Option<Figure> {
    let bar = |(series, row): (usize, &Row)| {
        let (value, simulated) = (row.statement.value?, number(row.simulated));
        // Signs that differ have no ratio.
        let ratio = simulated.map(|s| s / value).filter(|r| *r > 0.0);
        Some(Bar {
            label: format!("{}: {}", row.statement.id, row.statement.says),
            series,
            interval: ratio.map(|value| Interval { value, low: value, high: value }),
            unsure: row.statement.state == State::Fitted,
            note: format!("paper {value}, simulated {}", simulated.unwrap_or(f64::NAN)),
        })
    };
    let group = |(series, state): (usize, State)| BarGroup {
        label: state.name().to_owned(),
        bars: paper
            .state(state)
            .filter(|row| row.statement.kind == ValueKind::Value && row.statement.counts())
            .filter_map(|row| bar((series, row)))
            .collect(),
    };
    let groups = [State::Test, State::Development, State::Fitted];
    let groups: Vec<BarGroup> = (1..).zip(groups).map(group).filter(|g| !g.bars.is_empty()).collect();
    let title = "Simulated values by the paper's".to_owned();
    let drawn = !groups.is_empty();
    let plot = Bars {
        title: title.clone(),
        about: "Bars: each simulated value as a ratio to the paper's.".to_owned(),
        axis: Axis::new("simulated / paper", Unit::Ratio, Kind::Log),
        reference: 1.0,
        reference_label: "as in the paper".to_owned(),
        groups,
    };
    drawn.then(|| Figure {
        name: format!("{}-values", paper.name),
        title,
        caption: "Logarithmic. A value counts as reproduced between 0.75× and 1.25×; bounds and directions are not drawn."
            .to_owned(),
        half: false,
        plot: Box::new(plot),
    })
}

/// The number that was simulated.
const fn number(found: Option<Found>) -> Option<f64> {
    match found {
        Some(Found::Number(n)) => Some(n),
        _ => None,
    }
}

const fn unit(quantity: Quantity) -> Unit {
    match quantity {
        Quantity::Plain => Unit::Plain,
        Quantity::Factor => Unit::Ratio,
        Quantity::Share => Unit::Share,
    }
}

fn drawn(paper: &Reproduction, figure: &data::Figure) -> Figure {
    let slug: String =
        figure.place.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let plot: Box<dyn Plot> = match &figure.chart {
        Chart::Bars { reference, groups } => Box::new(bars(figure, *reference, groups)),
        Chart::Lines { across, series } => Box::new(lines(figure, across, series)),
        Chart::Points { across, points } => Box::new(scatter(figure, across, points)),
    };
    Figure {
        name: format!("{}-{slug}", paper.name),
        title: format!("{}: {}", figure.place, figure.title),
        caption: figure.caption.clone(),
        half: !matches!(figure.chart, Chart::Bars { .. }),
        plot,
    }
}

fn about(figure: &data::Figure, kind: &str) -> String {
    format!("{kind} of {}: {}.", figure.value, figure.place)
}

fn bars(figure: &data::Figure, reference: f64, groups: &[data::Group]) -> Bars {
    let unit = unit(figure.quantity);
    let bar = |b: &data::Bar| Bar {
        label: b.label.clone(),
        series: b.series,
        interval: b.value.map(|value| {
            let (low, high) = b.range.unwrap_or((value, value));
            Interval { value, low, high }
        }),
        unsure: false,
        note: b.value.map_or_else(String::new, |value| format!("{}: {}", b.label, show(unit, value))),
    };
    let groups = groups
        .iter()
        .map(|g| BarGroup { label: g.label.clone(), bars: g.bars.iter().map(bar).collect() })
        .collect();
    let kind = if figure.quantity == Quantity::Factor { Kind::Log } else { Kind::Linear };
    Bars {
        title: figure.title.clone(),
        about: about(figure, "Bars"),
        axis: Axis::new(figure.value, unit, kind),
        reference,
        reference_label: show(unit, reference),
        groups,
    }
}

fn lines(figure: &data::Figure, across: &str, series: &[data::Series]) -> Curves {
    let curve = |(series, s): (usize, &data::Series)| Curve {
        label: s.label.clone(),
        series,
        points: s.points.clone(),
        marks: true,
    };
    // vCPU counts double from point to point.
    let doubling = |s: &data::Series| s.points.windows(2).all(|p| p[1].0 > 1.5 * p[0].0);
    let kind = if series.iter().all(doubling) { Kind::Log } else { Kind::Linear };
    Curves {
        title: figure.title.clone(),
        about: about(figure, "Lines"),
        x: Axis::new(across, Unit::Plain, kind),
        y: Axis::new(figure.value, unit(figure.quantity), Kind::Linear),
        curves: (1..).zip(series).map(curve).collect(),
    }
}

fn scatter(figure: &data::Figure, across: &str, points: &[data::Point]) -> Scatter {
    let point = |p: &data::Point| Point { label: p.label.clone(), x: p.x, y: p.y };
    let r = correlation(&points.iter().map(|p| (p.x, p.y)).collect::<Vec<_>>());
    Scatter {
        title: figure.title.clone(),
        about: about(figure, "Points"),
        x: Axis::new(across, Unit::Plain, Kind::Linear),
        y: Axis::new(figure.value, unit(figure.quantity), Kind::Linear),
        points: points.iter().map(point).collect(),
        note: r.map_or_else(String::new, |c| format!("r = {:.2}", c.r)),
        fit: true,
    }
}
