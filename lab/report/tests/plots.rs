//! For any input, a plot's drawing is valid XML with numeric positions, and texts neither overlap nor leave
//! it.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use common::check;
use gleaner_report::axis::Axis;
use gleaner_report::number::Unit;
use gleaner_report::plot::{
    Bar, BarGroup, Bars, Bin, Curve, Curves, Histogram, Interval, Lane, Plot, Point, Scatter, Span, Stack,
    StackLane, StackPart, Strip, StripLane, Timeline,
};
use gleaner_report::scale::Kind;
use proptest::collection::vec;
use proptest::prelude::*;

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![8 => 1e-3..1e6f64, 2 => any::<f64>(), 1 => Just(0.0), 1 => Just(f64::NAN)]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-z]{1,9}(-[a-z:]{1,9})?", 1 => any::<String>(), 1 => "[<>&\"']{1,80}"]
}

fn unit() -> impl Strategy<Value = Unit> {
    prop::sample::select(vec![Unit::Plain, Unit::Ratio, Unit::Seconds, Unit::Share])
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Linear, Kind::Log, Kind::Nines])
}

fn axis() -> impl Strategy<Value = Axis> {
    (name(), unit(), kind()).prop_map(|(label, unit, kind)| Axis::new(label, unit, kind))
}

fn interval() -> impl Strategy<Value = Option<Interval>> {
    prop::option::of((value(), value(), value()).prop_map(|(value, low, high)| Interval { value, low, high }))
}

fn bars() -> impl Strategy<Value = Bars> {
    let bar = (name(), 0usize..9, interval(), any::<bool>(), name())
        .prop_map(|(label, series, interval, unsure, note)| Bar { label, series, interval, unsure, note });
    let group = (prop_oneof![name(), Just(String::new())], vec(bar, 0..5))
        .prop_map(|(label, bars)| BarGroup { label, bars });
    (axis(), vec(group, 0..5), name()).prop_map(|(axis, groups, reference_label)| Bars {
        title: "bars".to_owned(),
        about: String::new(),
        axis,
        reference: 1.0,
        reference_label,
        groups,
    })
}

fn scatter() -> impl Strategy<Value = Scatter> {
    let point = (name(), value(), value()).prop_map(|(label, x, y)| Point { label, x, y });
    (axis(), axis(), vec(point, 0..25), name(), any::<bool>()).prop_map(|(x, y, points, note, fit)| Scatter {
        title: "scatter".to_owned(),
        about: String::new(),
        x,
        y,
        points,
        note,
        fit,
    })
}

fn curves() -> impl Strategy<Value = Curves> {
    let curve = (name(), 0usize..9, vec((value(), value()), 0..9), any::<bool>())
        .prop_map(|(label, series, points, marks)| Curve { label, series, points, marks });
    (axis(), axis(), vec(curve, 0..9)).prop_map(|(x, y, curves)| Curves {
        title: "curves".to_owned(),
        about: String::new(),
        x,
        y,
        curves,
    })
}

fn strip() -> impl Strategy<Value = Strip> {
    let lane = (name(), 0usize..9, vec(value(), 0..20), interval())
        .prop_map(|(label, series, values, middle)| StripLane { label, series, values, middle });
    (axis(), vec(lane, 0..8)).prop_map(|(axis, lanes)| Strip {
        title: "strip".to_owned(),
        about: String::new(),
        axis,
        lanes,
    })
}

fn histogram() -> impl Strategy<Value = Histogram> {
    let bin = (value(), value(), value()).prop_map(|(from, to, count)| Bin { from, to, count });
    let within = prop::option::of((value(), value()));
    (axis(), name(), vec(bin, 0..20), within).prop_map(|(axis, counted, bins, within)| Histogram {
        title: "histogram".to_owned(),
        about: String::new(),
        axis,
        counted,
        bins,
        within,
    })
}

fn stack() -> impl Strategy<Value = Stack> {
    let part = (name(), 0usize..9, any::<bool>()).prop_map(|(label, series, pale)| StackPart {
        label,
        series,
        pale,
    });
    let lane = (name(), vec(vec(value(), 0..6), 0..9), vec(value(), 0..9))
        .prop_map(|(label, shares, over)| StackLane { label, shares, over });
    let over = prop_oneof![name(), Just(String::new())];
    (name(), vec(value(), 0..9), vec(part, 0..6), over, vec(lane, 0..5)).prop_map(
        |(time, mut edges_s, parts, over, lanes)| {
            edges_s.sort_by(f64::total_cmp);
            Stack { title: "stack".to_owned(), about: String::new(), time, edges_s, parts, over, lanes }
        },
    )
}

fn timeline() -> impl Strategy<Value = Timeline> {
    let steps = (name(), 0usize..9, unit(), vec((value(), value()), 0..9))
        .prop_map(|(label, series, unit, points)| Lane::Steps { label, series, unit, points });
    let span = (value(), value()).prop_map(|(from_s, to_s)| Span { from_s, to_s });
    let spans = (name(), 0usize..9, vec(span, 0..9)).prop_map(|(label, series, spans)| Lane::Spans {
        label,
        series,
        spans,
    });
    (name(), value(), vec(prop_oneof![steps, spans], 0..6)).prop_map(|(time, end_s, lanes)| Timeline {
        title: "timeline".to_owned(),
        about: String::new(),
        time,
        end_s,
        lanes,
    })
}

fn plot() -> impl Strategy<Value = Box<dyn Plot>> {
    fn boxed(plot: impl Plot + 'static) -> Box<dyn Plot> {
        Box::new(plot)
    }
    prop_oneof![
        bars().prop_map(boxed),
        scatter().prop_map(boxed),
        curves().prop_map(boxed),
        strip().prop_map(boxed),
        histogram().prop_map(boxed),
        timeline().prop_map(boxed),
        stack().prop_map(boxed),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_drawing_is_sound(plot in plot(), width in 280.0..1300.0f64) {
        if let Err(what) = check(&plot.draw(width).file()) {
            prop_assert!(false, "{} px: {}", width, what);
        }
    }
}

#[test]
fn an_overlap_is_found() {
    let svg = |x: f64| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-10 -10 220 120\"><title>t</title>\
             <text x=\"10\" y=\"50\" text-anchor=\"start\" class=\"body\">first</text>\
             <text x=\"{x}\" y=\"55\" text-anchor=\"start\" class=\"body\">second</text></svg>"
        )
    };
    assert_eq!(check(&svg(100.0)).unwrap().len(), 2);
    assert!(check(&svg(20.0)).unwrap_err().contains("overlaps"));
    assert!(check(&svg(190.0)).unwrap_err().contains("leaves"));
}

#[test]
fn histograms_show_every_bin() {
    let bins: Vec<Bin> = (0..8)
        .map(|i| Bin { from: 2f64.powi(i) * 1e-6, to: 2f64.powi(i + 1) * 1e-6, count: f64::from(i * i) })
        .collect();
    let histogram = Histogram {
        title: "Idle periods".to_owned(),
        about: String::new(),
        axis: Axis::new("length", Unit::Seconds, Kind::Log),
        counted: "idle periods".to_owned(),
        bins,
        within: None,
    };
    let svg = histogram.draw(460.0).file();
    let texts = check(&svg).unwrap();
    assert_eq!(svg.matches("class=\"bar\"").count(), 8);
    assert!(
        texts.iter().any(|text| text.text == "idle periods") && texts.iter().any(|text| text.text == "10 µs")
    );
}
