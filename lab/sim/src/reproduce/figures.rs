//! The forms of the papers' figures.

use super::{Bar, Chart, Figure, Group, Point, Quantity};

/// A value with its label.
pub(super) type Labelled = (String, Option<f64>);

/// A group of bars for each program, with these labelled values.
pub(super) fn bars(
    place: &'static str,
    title: &str,
    caption: &str,
    value: &'static str,
    quantity: Quantity,
    values: Vec<(&str, Vec<Labelled>)>,
) -> Figure {
    let bar = |(series, (label, value)): (usize, Labelled)| Bar { label, series, value, range: None };
    let group = |(label, bars): (&str, Vec<Labelled>)| Group {
        label: label.to_owned(),
        bars: (1..).zip(bars).map(bar).collect(),
    };
    let reference = if quantity == Quantity::Factor { 1.0 } else { 0.0 };
    // One bar for each program: one group, labelled by the programs.
    let groups = if values.len() > 1 && values.iter().all(|(_, bars)| bars.len() == 1) {
        let bars = values.into_iter().filter_map(|(label, mut bars)| Some((label.to_owned(), bars.pop()?.1)));
        vec![group(("", bars.collect()))]
            .into_iter()
            .map(|g| Group { bars: g.bars.into_iter().map(|b| Bar { series: 1, ..b }).collect(), ..g })
            .collect()
    } else {
        values.into_iter().map(group).collect()
    };
    Figure {
        place,
        title: title.to_owned(),
        caption: caption.to_owned(),
        value,
        quantity,
        chart: Chart::Bars { reference, groups },
    }
}

/// Labelled points over `across`.
pub(super) fn points(
    place: &'static str,
    title: &str,
    value: &'static str,
    across: &'static str,
    values: Vec<(&str, Option<f64>, Option<f64>)>,
) -> Figure {
    let point = |(label, x, y): (&str, Option<f64>, Option<f64>)| {
        Some(Point { label: label.to_owned(), x: x?, y: y? })
    };
    Figure {
        place,
        title: title.to_owned(),
        caption:
            "Over how often vCPUs become idle when the program runs alone. 16 vCPUs; most shapes are assumed."
                .to_owned(),
        value,
        quantity: Quantity::Factor,
        chart: Chart::Points { across, points: values.into_iter().filter_map(point).collect() },
    }
}
