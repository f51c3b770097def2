//! Evaluations of whole results: comparing two, and the correlation of Figure 1.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/results.rs"]
mod results;

use gleaner_bench::compare::overhead::Scenario;
use gleaner_bench::compare::{CompareError, compare};
use gleaner_bench::experiment::slowdown_by_idling;
use gleaner_proto::result::{BenchResult, Cell, Comparison, Estimate, Metric, Row, SCHEMA, Sample, Verdict};
use results::{result, row};

/// Ten samples around these wall-clock and CPU seconds of the command.
fn cell(mode: &str, wall_s: f64, cpu_s: f64) -> Cell {
    let sample = |round: usize| {
        let vary = 1.0 + 0.001 * round as f64;
        let metrics = [(Metric::WallS, wall_s * vary), (Metric::CpuSPerOp, cpu_s * vary)];
        Sample { round, position: 0, start_s: 0.0, metrics: metrics.into(), timeline: vec![] }
    };
    Cell {
        mode: mode.into(),
        command: "gleaner workload matmul --json --operations 100".into(),
        samples: (0..10).map(sample).collect(),
        summaries: [].into(),
    }
}

const SECOND: &str = "gleaner workload matmul --json --seconds 3600";

/// Alone: native 10 s and 36 CPU seconds, virtualised 12 s and 45. Two instances: native 19 s and 35 each,
/// virtualised 18 s and 42 each, of which a sample has the command's own. The tests of the formulas calculate the same numbers by hand.
fn native_and_virtualised() -> (BenchResult, BenchResult) {
    let rows = |alone: (f64, f64), two: (f64, f64)| {
        vec![
            row("alone", &[], vec![cell("default", alone.0, alone.1)]),
            row("two", &[SECOND], vec![cell("default", two.0, two.1)]),
        ]
    };
    let native = result(false, &["default"], rows((10.0, 36.0), (19.0, 35.0)));
    let virtualised = result(true, &["default"], rows((12.0, 45.0), (18.0, 42.0)));
    (native, virtualised)
}

#[test]
fn a_native_and_a_virtualised_result_give_the_overhead_in_all_three_scenarios() {
    let (native, virtualised) = native_and_virtualised();
    let expected = [
        ("alone", Scenario::Uc, 0.2, 0.25, 0.96),
        ("two", Scenario::Oc, -0.1, 1.0 / 6.0, 0.9 / (7.0 / 6.0)),
        ("two", Scenario::Oc2, -1.0 / 19.0, 0.2, 18.0 / 19.0 / 1.2),
    ];
    // The order of the files does not affect the overhead.
    for compared in [compare(&native, &virtualised).unwrap(), compare(&virtualised, &native).unwrap()] {
        assert_eq!(compared.overheads.len(), expected.len(), "{compared}");
        for (found, (row, scenario, t, r, omega)) in compared.overheads.iter().zip(expected) {
            assert_eq!((found.row.as_str(), found.overhead.scenario), (row, scenario));
            let close = |a: f64, b: f64| (a - b).abs() < 1e-3;
            let o = &found.overhead;
            assert!(close(o.delta_eta_t.value, t), "{o:?}");
            assert!(close(o.delta_eta_r.value, r), "{o:?}");
            assert!(close(o.omega.value, omega), "{o:?}");
            assert!(o.delta_eta_t.low <= t && t <= o.delta_eta_t.high, "{o:?}");
        }
    }
    let text = compare(&native, &virtualised).unwrap().to_string();
    for part in
        ["A: a test", "native, none (bare metal)", "alone, default  UC ", "+20.0 %", "OC2", "lower bound"]
    {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

#[test]
fn the_native_side_is_its_first_mode_and_all_virtualised_ones_are_reported() {
    let native = result(false, &["default"], vec![row("w", &[], vec![cell("default", 10.0, 36.0)])]);
    let cells = vec![cell("default", 30.0, 40.0), cell("gleaner", 15.0, 40.0)];
    let virtualised = result(true, &["default", "gleaner"], vec![row("other name", &[], cells)]);
    let compared = compare(&native, &virtualised).unwrap();
    let overheads: Vec<(&str, f64)> =
        compared.overheads.iter().map(|o| (o.mode.as_str(), o.overhead.delta_eta_t.value)).collect();
    assert_eq!(overheads.len(), 2);
    assert!(overheads[0].0 == "default" && (overheads[0].1 - 2.0).abs() < 1e-9);
    assert!(overheads[1].0 == "gleaner" && (overheads[1].1 - 0.5).abs() < 1e-9);
    assert!(compared.lines.is_empty(), "rows of different names are not compared as such");
}

#[test]
fn another_co_runner_makes_no_scenario_of_the_paper() {
    let rows = |co: &[&str]| vec![row("w", co, vec![cell("default", 10.0, 36.0)])];
    let (native, virtualised) =
        (result(false, &["default"], rows(&[])), result(true, &["default"], rows(&["x"])));
    let compared = compare(&native, &virtualised).unwrap();
    assert!(compared.overheads.is_empty());
    assert!(
        compared.notes.iter().any(|note| note.contains("second instance of itself")),
        "{:?}",
        compared.notes
    );
    // A shell that repeats the command is a second instance, too.
    let command = cell("default", 1.0, 1.0).command;
    let looped = format!("sh -c 'while {command}; do :; done'");
    let virtualised = result(true, &["default"], rows(&[&looped]));
    assert_eq!(compare(&native, &virtualised).unwrap().overheads.len(), 1);
}

#[test]
fn rows_and_modes_are_matched_by_name() {
    let rows = |wall: f64| {
        vec![
            row("same", &[], vec![cell("default", 10.0, 1.0), cell("gleaner", wall, 1.0)]),
            row(&format!("only at {wall}"), &[], vec![cell("default", 1.0, 1.0)]),
        ]
    };
    let modes = ["default", "gleaner"];
    let compared = compare(&result(true, &modes, rows(8.0)), &result(true, &modes, rows(4.0))).unwrap();
    let line =
        |mode: &str, metric| compared.lines.iter().find(|l| l.mode == mode && l.metric == metric).unwrap();
    let faster = line("gleaner", Metric::WallS);
    assert!(faster.primary && faster.verdict == Verdict::Better && faster.p < 0.01, "{faster:?}");
    assert!((faster.ratio.median - 0.5).abs() < 1e-9 && faster.ratio.low < 0.5 && faster.ratio.high > 0.5);
    assert_eq!(line("default", Metric::WallS).verdict, Verdict::NoDifference);
    assert!(!line("gleaner", Metric::CpuSPerOp).primary);
    let notes = compared.notes.join("\n");
    assert!(notes.contains("only in A: only at 8") && notes.contains("only in B: only at 4"), "{notes}");
    assert!(notes.contains("both results are of virtual machines"), "{notes}");
    let text = compared.to_string();
    assert!(text.contains("same, gleaner: wall time (s)") && text.contains("faster"), "{text}");
    let json = serde_json::to_value(&compared).unwrap();
    assert_eq!(json["lines"][0]["row"], "same");
    assert_eq!(json["a"]["virtualised"], true);
}

#[test]
fn what_cannot_be_compared_is_an_error_with_its_remedy() {
    let with = |name: &str| result(true, &["default"], vec![row(name, &[], vec![cell("default", 1.0, 1.0)])]);
    let error = compare(&with("x"), &with("y")).unwrap_err();
    assert!(matches!(error, CompareError::NothingInCommon { .. }));
    let text = error.to_string();
    assert!(text.contains("A has the rows x") && text.contains("B has the rows y"), "{text}");
    assert!(text.contains("one scenario"), "{text}");
    let old = BenchResult { schema: SCHEMA + 1, ..with("x") };
    let error = compare(&with("x"), &old).unwrap_err();
    assert!(matches!(error, CompareError::Schema { which: 'B', found } if found == SCHEMA + 1), "{error}");
    assert!(error.to_string().contains("measure again"), "{error}");
}

/// Idle entries 10, 20, 30, 40 per second; with idlepoll the wall time is 1/1, 1/2, 1/3, 1/4.
#[test]
fn rows_that_idle_more_are_slowed_down_more() {
    let estimate = |median: f64| Estimate { median, low: median, high: median, n: 8, confidence: 0.95 };
    let rows = |modes: [&str; 2], count: u8| -> BenchResult {
        let row = |factor: u8| {
            let (name, factor) = (factor.to_string(), f64::from(factor));
            let mut cells = vec![cell(modes[0], 1.0, 1.0), cell(modes[1], 1.0, 1.0)];
            cells[0].summaries.insert(Metric::IdlePerS, estimate(10.0 * factor));
            let comparison = Comparison {
                metric: Metric::WallS,
                mode: modes[1].into(),
                baseline: modes[0].into(),
                ratio: estimate(1.0 / factor),
                rank_sum_p: 0.0,
                signed_rank_p: 0.0,
                verdict: Verdict::Better,
            };
            Row { comparisons: vec![comparison], ..row(&name, &[], cells) }
        };
        result(true, &modes, (1..=count).map(row).collect())
    };
    let four = rows(["default", "idlepoll"], 4);
    let (mode, c) = slowdown_by_idling(&four).unwrap();
    assert!(mode == "idlepoll" && (c.r - 1.0).abs() < 1e-9 && c.n == 4, "{c:?}");
    assert_eq!(slowdown_by_idling(&rows(["default", "idlepoll"], 3)), None, "three points say nothing");
    assert_eq!(slowdown_by_idling(&rows(["idlepoll", "default"], 4)), None);
    assert_eq!(slowdown_by_idling(&rows(["default", "gleaner"], 4)), None);
}
