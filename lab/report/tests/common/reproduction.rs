//! A report like those of `gleaner sim reproduce`.

use gleaner_report::reproduction::data as reproduction;

/// Two papers with every kind of figure.
pub(crate) fn reproduction() -> reproduction::Report {
    use reproduction::{Bar, Basis, Chart, Figure, Group, Point, Quantity, Reproduction, Series};
    let mut first =
        Reproduction { name: "first", title: "A Paper with Numbers (Conference 2014)", ..Default::default() };
    for (index, name) in
        ["dedup", "streamcluster", "facesim", "a program with a rather long name"].iter().enumerate()
    {
        let basis = if index == 0 { Basis::Fitted } else { Basis::HeldOut };
        let simulated = (index != 2).then_some(37.5 * 1.3_f64.powf(index as f64));
        first.number("Table 1", &format!("{name} on 16 vCPUs, s"), 37.5, simulated, basis);
        first.direction(format!("§7.1: Gleaner makes {name} faster"), Some(index != 1));
    }
    first.not_modelled = vec!["Figure 8: no database in the library"];
    let chart = |place, quantity, chart| Figure {
        place,
        title: "What it costs by program".to_owned(),
        caption: "Each bar is a mean.".to_owned(),
        value: "overhead",
        quantity,
        chart,
    };
    let bar = |series: usize| Bar {
        label: format!("scenario {series}"),
        series,
        value: (series != 2).then_some(0.4 * series as f64 - 0.3),
        range: Some((-0.5, 1.2)),
    };
    let groups =
        ["dedup", "vips"].map(|label| Group { label: label.to_owned(), bars: (1..4).map(bar).collect() });
    let series = [1.0, 2.0, 3.0].map(|slope| Series {
        label: format!("slope {slope}"),
        points: [4.0, 8.0, 16.0, 32.0, 64.0].map(|x: f64| (x, slope * x.log2() / 10.0)).into(),
    });
    let points =
        (1..9).map(|i| Point { label: format!("program {i}"), x: f64::from(i * i), y: f64::from(i) });
    let points = points.collect();
    let mut second = Reproduction { name: "second", title: "A Paper with Figures", ..Default::default() };
    second.figures = vec![
        chart("Figure 1", Quantity::Share, Chart::Bars { reference: 0.0, groups: groups.into() }),
        chart("Figure 2a", Quantity::Share, Chart::Lines { across: "vCPUs", series: series.into() }),
        chart("Figure 2b", Quantity::Factor, Chart::Points { across: "halts per second", points }),
    ];
    second.direction("grows", Some(true));
    reproduction::Report { version: "0.1.0".to_owned(), seed: 1, papers: vec![first, second] }
}
