//! A result like those of `gleaner bench`.

use std::collections::BTreeMap;

use gleaner_proto::result::{
    BenchResult, Better, Cell, Comparison, Ending, Estimate, Metric, ModeInfo, Moment, Plan, Row, SCHEMA,
    Sample, Verdict, Warning,
};

use Metric::{Throughput, WallS};

use super::{environment, noise};

/// The modes and their descriptions.
const MODES: [(&str, &str); 5] = [
    ("default", "the untouched system"),
    ("gleaner", "under Gleaner, which decides by itself"),
    ("haltpoll:200us", "idle vCPUs poll for up to 200 µs before they halt"),
    ("consolidate:1", "on one vCPU only"),
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

#[rustfmt::skip]
const SHAPES: [Shape; 7] = [
    shape("request-response", "requests", Throughput, 21_084.0, [1.0, 3.54, 3.74, 3.1, 3.8], 21_300.0),
    shape("pipeline", "items", Throughput, 1_740.0, [1.0, 1.38, 1.41, 0.71, 1.47], 7_400.0),
    shape("barrier", "", WallS, 0.82, [1.0, 0.61, 0.60, 1.34, 0.58], 9_100.0),
    shape("convoy", "critical sections", Throughput, 88_010.0, [1.0, 0.98, 0.60, 1.22, 0.58], 2_900.0),
    shape("compute", "", WallS, 1.204, [1.0, 1.004, 1.01, 1.98, 1.02], 60.0),
    shape("tlb", "unmaps", Throughput, 12_500.0, [1.0, 1.05, 1.06, 1.4, 1.07], 1_150.0),
    shape("freqsleep", "sleeps", Throughput, 9_420.0, [1.0, 1.24, 1.3, 1.02, 1.33], 8_700.0),
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

fn estimate(values: &[f64]) -> Estimate {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    Estimate { median: sorted[n / 2], low: sorted[n / 8], high: sorted[n - 1 - n / 8], n, confidence: 0.95 }
}

/// Samples per mode.
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
    let (above, below) = (ratio.low > 1.03, ratio.high < 0.97);
    let verdict = match (above || below, above == higher) {
        (false, _) => Verdict::NoDifference,
        (true, true) => Verdict::Better,
        (true, false) => Verdict::Worse,
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
        server: None,
        co_runners: Vec::new(),
        paper: BTreeMap::new(),
        paper_ratio: BTreeMap::new(),
        cells,
        comparisons,
    }
}

/// Seven programs in five modes, with everything that a report can show.
pub(crate) fn result() -> BenchResult {
    BenchResult {
        schema: SCHEMA,
        title: "Seven ways of waiting, in five modes".to_owned(),
        source: "Gleaner (ATC'14), Figures 1 and 7".to_owned(),
        repeat_with: "gleaner bench run lab/bench/scenarios/quick.toml --rounds 9 -o result.json".to_owned(),
        environment: environment(),
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
                mode: "consolidate:1".to_owned(),
                metric: Metric::Throughput,
                change: -0.071,
            },
        ],
        failures: Vec::new(),
        ending: Ending::Complete,
        earlier: Vec::new(),
    }
}
