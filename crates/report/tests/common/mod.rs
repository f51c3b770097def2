//! A result as `gleaner bench` writes it, and readers of what is drawn.

#![allow(dead_code, reason = "every test binary uses its own part of this")]

use std::collections::BTreeMap;

use gleaner_proto::reproduction;
use gleaner_proto::result::{
    BenchResult, Better, Cell, Comparison, Ending, Environment, Estimate, Metric, ModeInfo, Moment, Plan,
    Row, SCHEMA, Sample, Verdict, Warning,
};
use gleaner_report::text::{Anchor, Rect, Style};

/// The modes with what they do.
const MODES: [(&str, &str); 5] = [
    ("default", "the untouched system"),
    ("gleaner", "under Gleaner, which decides by itself"),
    ("haltpoll:200us", "idle vCPUs poll for up to 200 µs before they halt"),
    ("pack:1", "on one vCPU only"),
    ("idlepoll", "idle vCPUs never halt"),
];

/// A row: name, unit, primary metric, the default's value, each mode's ratio to it, idle entries per second.
struct Shape {
    name: &'static str,
    unit: &'static str,
    primary: Metric,
    value: f64,
    ratios: [f64; 5],
    idle_per_s: f64,
}

const SHAPES: [Shape; 7] = [
    shape(
        "request-response",
        "requests",
        Metric::Throughput,
        21_084.0,
        [1.0, 3.54, 3.74, 3.1, 3.8],
        21_300.0,
    ),
    shape("pipeline", "items", Metric::Throughput, 1_740.0, [1.0, 1.38, 1.41, 0.71, 1.47], 7_400.0),
    shape("barrier", "", Metric::WallS, 0.82, [1.0, 0.61, 0.60, 1.34, 0.58], 9_100.0),
    shape(
        "convoy",
        "critical sections",
        Metric::Throughput,
        88_010.0,
        [1.0, 0.98, 0.60, 1.22, 0.58],
        2_900.0,
    ),
    shape("compute", "", Metric::WallS, 1.204, [1.0, 1.004, 1.01, 1.98, 1.02], 60.0),
    shape("tlb", "unmaps", Metric::Throughput, 12_500.0, [1.0, 1.05, 1.06, 1.4, 1.07], 1_150.0),
    shape("freqsleep", "sleeps", Metric::Throughput, 9_420.0, [1.0, 1.24, 1.3, 1.02, 1.33], 8_700.0),
];

const fn shape(
    name: &'static str,
    unit: &'static str,
    primary: Metric,
    value: f64,
    ratios: [f64; 5],
    idle_per_s: f64,
) -> Shape {
    Shape { name, unit, primary, value, ratios, idle_per_s }
}

/// Numbers between −1 and 1 that look like noise and are the same in every run.
fn noise(seed: usize) -> f64 {
    let x = (seed as f64 * 12.9898).sin() * 43_758.545_3;
    2.0 * (x - x.floor()) - 1.0
}

fn estimate(values: &[f64]) -> Estimate {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    Estimate { median: sorted[n / 2], low: sorted[n / 8], high: sorted[n - 1 - n / 8], n, confidence: 0.95 }
}

/// How many samples each mode has.
pub(crate) const ROUNDS: usize = 9;

fn samples(shape: &Shape, row: usize, mode: usize) -> Vec<Sample> {
    let sample = |round: usize| {
        let wobble = 1.0 + 0.04 * noise(row * 1000 + mode * 100 + round);
        let value = shape.value * shape.ratios[mode] * wobble;
        let wall_s = if shape.primary == Metric::WallS { value } else { 1.0 };
        let awake = [0.0, 0.6, 0.5, 0.0, 1.1][mode];
        let mut metrics = BTreeMap::from([
            (shape.primary, value),
            (Metric::WallS, wall_s),
            (Metric::CpuUserS, 0.31 * wobble),
            (Metric::CpuSystemS, 0.22 * wobble),
            (Metric::CpuPollingS, awake * wobble),
            (Metric::CpuSPerOp, (0.7 + awake) * wobble / value),
            (Metric::IdlePerS, shape.idle_per_s * wobble),
            (Metric::StealS, 0.002),
        ]);
        if shape.name == "request-response" {
            let p50 = 45e0 / shape.ratios[mode] * wobble;
            let tail =
                [(Metric::P50Us, 1.0), (Metric::P90Us, 1.4), (Metric::P99Us, 3.1), (Metric::P999Us, 11.0)];
            metrics.extend(tail.map(|(metric, factor)| (metric, p50 * factor)));
        }
        let start_s = (round * 5 + mode) as f64 * 1.1;
        let timeline = if MODES[mode].0 == "gleaner" { moments(shape) } else { Vec::new() };
        Sample { round, position: mode, start_s, metrics, timeline }
    };
    (0..ROUNDS).map(sample).collect()
}

fn moments(shape: &Shape) -> Vec<Moment> {
    let moment = |at_s, active_vcpus, retention: &str, limit_us| Moment {
        at_s,
        active_vcpus,
        retention: retention.to_owned(),
        limit_us,
    };
    let mut moments = vec![moment(0.0, 2, "halt", 0.0)];
    if shape.idle_per_s > 5_000.0 {
        for step in 0..6 {
            let at_s = 0.08 + f64::from(step) * 0.09;
            moments.push(moment(at_s, 2, "haltpoll", 200.0));
            moments.push(moment(at_s + 0.03, if step == 1 { 1 } else { 2 }, "halt", 0.0));
        }
        moments.push(moment(0.6, 2, "haltpoll", 258.0));
    }
    moments
}

fn compare(metric: Metric, cell: &Cell, base: &Cell) -> Comparison {
    let ratios: Vec<f64> =
        cell.values(metric).iter().zip(base.values(metric)).map(|(value, base)| value / base).collect();
    let ratio = estimate(&ratios);
    let higher = metric.better() == Better::Higher;
    let verdict = match (ratio.low > 1.03, ratio.high < 0.97) {
        (true, _) => {
            if higher {
                Verdict::Better
            } else {
                Verdict::Worse
            }
        }
        (_, true) => {
            if higher {
                Verdict::Worse
            } else {
                Verdict::Better
            }
        }
        _ => Verdict::NoDifference,
    };
    let p = if verdict == Verdict::NoDifference { 0.34 } else { 0.000_4 };
    Comparison {
        metric,
        mode: cell.mode.clone(),
        baseline: base.mode.clone(),
        ratio,
        rank_sum_p: p,
        signed_rank_p: p,
        verdict,
    }
}

fn row(index: usize, shape: &Shape) -> Row {
    let cell = |(mode, (name, _)): (usize, &(&str, &str))| {
        let samples = samples(shape, index, mode);
        let metrics: Vec<Metric> = samples[0].metrics.keys().copied().collect();
        let values = |metric: Metric| -> Vec<f64> { samples.iter().map(|s| s.metrics[&metric]).collect() };
        let summaries = metrics.into_iter().map(|metric| (metric, estimate(&values(metric)))).collect();
        let command =
            format!("gleaner run --quiet --fixed {name} -- gleaner workload {} --window 1s", shape.name);
        Cell { mode: (*name).to_owned(), command, samples, summaries }
    };
    let cells: Vec<Cell> = MODES.iter().enumerate().map(cell).collect();
    let comparisons = cells[1..]
        .iter()
        .flat_map(|cell| [shape.primary, Metric::CpuSPerOp].map(|metric| compare(metric, cell, &cells[0])))
        .collect();
    Row {
        name: shape.name.to_owned(),
        unit: shape.unit.to_owned(),
        primary: shape.primary,
        workload: Some(shape.name.to_owned()),
        co_runners: Vec::new(),
        paper: BTreeMap::new(),
        paper_ratio: BTreeMap::new(),
        cells,
        comparisons,
    }
}

/// Seven programs in five modes, with all that a report can show.
pub(crate) fn result() -> BenchResult {
    let knob = |path: &str, value: &str| (path.to_owned(), value.to_owned());
    BenchResult {
        schema: SCHEMA,
        title: "Seven ways of waiting, in five modes".to_owned(),
        source: "Gleaner (ATC'14), Figures 1 and 7".to_owned(),
        repeat_with: "gleaner bench run bench/scenarios/quick.toml --rounds 9 -o result.json".to_owned(),
        environment: Environment {
            date: "2026-01-02T03:04:05Z".to_owned(),
            gleaner: "0.1.0".to_owned(),
            kernel: "6.18.44".to_owned(),
            kernel_version: "#1 SMP PREEMPT_DYNAMIC".to_owned(),
            hypervisor: "KVM".to_owned(),
            virtualised: true,
            cpu_model: "AMD EPYC".to_owned(),
            vcpus: 2,
            memory_bytes: 8 << 30,
            cpuidle_driver: "haltpoll".to_owned(),
            cpuidle_governor: "haltpoll".to_owned(),
            preemption: "none (chosen at boot)".to_owned(),
            knobs: BTreeMap::from([
                knob("/sys/module/haltpoll/parameters/guest_halt_poll_ns", "0"),
                knob("/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us", "0"),
            ]),
        },
        plan: Plan {
            rounds: ROUNDS,
            max_rounds: None,
            precision: None,
            warmup_rounds: 1,
            window_s: 1.0,
            seed: 1,
            order: "Every round runs all modes of all rows in a new random order.".to_owned(),
        },
        modes: MODES
            .map(|(name, about)| ModeInfo {
                name: name.to_owned(),
                about: about.to_owned(),
                set: Vec::new(),
                unset: Vec::new(),
            })
            .into(),
        rows: SHAPES.iter().enumerate().map(|(index, shape)| row(index, shape)).collect(),
        warnings: vec![
            Warning::Steal { row: "pipeline".to_owned(), mode: "default".to_owned(), share: 0.062, round: 3 },
            Warning::Drift {
                row: "convoy".to_owned(),
                mode: "pack:1".to_owned(),
                metric: Metric::Throughput,
                change: -0.071,
            },
        ],
        ending: Ending::Complete,
    }
}

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

/// A text of a drawing with the box that it takes.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) place: Rect,
}

/// What is wrong with a drawing: no XML, numbers that are none, texts that overlap or leave it, anything fetched.
/// Returns its texts.
pub(crate) fn check(svg: &str) -> Result<Vec<Text>, String> {
    let document = roxmltree::Document::parse(svg).map_err(|error| format!("no XML: {error}"))?;
    let root = document.root_element();
    let title = root.children().find(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "title")));
    if title.and_then(|title| title.text()).is_none_or(str::is_empty) {
        return Err("the drawing has no title".to_owned());
    }
    let view = root.attribute("viewBox").unwrap_or_default();
    let view: Vec<f64> = view.split(' ').filter_map(|number| number.parse().ok()).collect();
    let [x, y, w, h] = view[..] else { return Err(format!("bad viewBox {view:?}")) };
    // The free room around a file is not there in a page.
    let view = Rect { x: 0.0, y: 0.0, w: w + 2.0 * x, h: h + 2.0 * y };
    let mut texts: Vec<Text> = Vec::new();
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            if value.contains("NaN") || value.contains("inf") {
                return Err(format!("{name}={value}"));
            }
            if ["href", "src", "style", "onload", "onclick"].contains(&name) {
                return Err(format!("{name}={value} in a drawing"));
            }
        }
        match node.tag_name().name() {
            "script" | "image" | "foreignObject" | "a" | "use" => {
                return Err(format!("<{}> in a drawing", node.tag_name().name()));
            }
            "text" => {
                let text = text_of(node)?;
                if !view.contains(&text.place) {
                    return Err(format!("{text:?} leaves {view:?}"));
                }
                if let Some(other) = texts.iter().find(|other| other.place.overlaps(&text.place)) {
                    return Err(format!("{text:?} overlaps {other:?}"));
                }
                texts.push(text);
            }
            _ => {}
        }
    }
    Ok(texts)
}

fn text_of(node: roxmltree::Node<'_, '_>) -> Result<Text, String> {
    let number = |name| node.attribute(name).and_then(|n: &str| n.parse().ok()).ok_or(format!("no {name}"));
    let anchor = match node.attribute("text-anchor") {
        Some("start") => Anchor::Start,
        Some("middle") => Anchor::Middle,
        Some("end") => Anchor::End,
        other => return Err(format!("text-anchor {other:?}")),
    };
    let style = [Style::Body, Style::Small, Style::Strong]
        .into_iter()
        .find(|style| node.attribute("class") == Some(style.class()))
        .ok_or("a text without a known class")?;
    let text = node.text().unwrap_or_default().to_owned();
    let place = Rect::of_text(&text, number("x")?, number("y")?, anchor, style);
    // Positions are rounded to a tenth.
    let place = Rect { x: place.x + 0.1, w: (place.w - 0.2).max(0.0), y: place.y + 0.1, h: place.h - 0.2 };
    Ok(Text { text, place })
}
