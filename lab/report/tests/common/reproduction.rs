//! A report like those of `gleaner sim reproduce`.

use gleaner_report::reproduction::data as reproduction;

/// Two papers with every kind of figure.
pub(crate) fn reproduction() -> reproduction::Report {
    use reproduction::{
        Bar, Chart, Figure, Found, Group, Kind, Point, Quantity, Reproduction, Row, Series, State,
    };
    let mut first =
        Reproduction { name: "first", title: "A Paper with Numbers (Conference 2014)", ..Default::default() };
    for (index, name) in
        ["dedup", "streamcluster", "facesim", "a program with a rather long name"].iter().enumerate()
    {
        let state = if index == 0 { State::Fitted } else { State::Development };
        let simulated = (index != 2).then_some(37.5 * 1.3_f64.powf(index as f64));
        first.rows.push(Row {
            simulated: simulated.map(Found::Number),
            without: Some(Found::Number(10.0)),
            exchanged: (index == 0).then_some(Found::Number(1.0)),
            ..Row::new(statement(&format!("2-0{index}"), &format!("{name} on 16 vCPUs"), Kind::Value, state))
        });
        first.rows.push(Row {
            simulated: Some(Found::Holds(index != 1)),
            adaptive: Some(Found::Holds(true)),
            without: Some(Found::Holds(index == 3)),
            ..Row::new(statement(
                &format!("7-0{index}"),
                &format!("Gleaner makes {name} faster"),
                Kind::Direction,
                State::Test,
            ))
        });
    }
    let mut lacking = statement("8-01", "the database is faster", Kind::Direction, State::NotModelled);
    lacking.note = Some("lacks: no database in the library".to_owned());
    first.rows.push(Row::new(lacking));
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
    let mut again = Row::new(statement("1-02", "grows, as said", Kind::Direction, State::Test));
    again.statement.repeats = Some("1-01".to_owned());
    let grows = statement("1-01", "grows", Kind::Direction, State::Test);
    second.rows = vec![Row { simulated: Some(Found::Holds(true)), ..Row::new(grows) }, again];
    reproduction::Report { version: "0.1.0".to_owned(), papers: vec![first, second] }
}

fn statement(
    id: &str,
    says: &str,
    kind: reproduction::Kind,
    state: reproduction::State,
) -> reproduction::Statement {
    let is_number = kind != reproduction::Kind::Direction;
    reproduction::Statement {
        paper: "first".to_owned(),
        id: id.to_owned(),
        place: "§2, Table 1".to_owned(),
        says: says.to_owned(),
        kind,
        value: is_number.then_some(37.5),
        unit: is_number.then(|| "s".to_owned()),
        expects: (!is_number).then(|| "faster".to_owned()),
        state,
        repeats: None,
        off: Some("hypervisor".to_owned()),
        program: None,
        note: None,
    }
}
