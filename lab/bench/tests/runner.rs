//! The interleaved runner: its order, and how it handles failures.

use gleaner_bench::runner::{Cell, Plan, Problem, RowSamples};

fn plan() -> Plan {
    Plan {
        rows: ["a", "b"].map(String::from).to_vec(),
        modes: ["default", "x", "y"].map(String::from).to_vec(),
        rounds: 20,
        warmup_rounds: 0,
        seed: 1,
    }
}

fn problem(ends_run: bool) -> Problem {
    Problem { message: String::from("no such server"), ends_run }
}

fn is(cell: Cell, row: usize, round: usize, mode: usize) -> bool {
    (cell.row, cell.round, cell.mode) == (row, Some(round), mode)
}

#[test]
fn warm_up_is_measured_and_thrown_away() {
    let plan = Plan { warmup_rounds: 1, rounds: 2, ..plan() };
    let mut calls = 0;
    let outcome = plan.run(
        |cell| {
            calls += 1;
            Ok(cell.round)
        },
        |_, _| false,
        |_, _| None,
    );
    assert_eq!(calls, 2 * 3 * 3);
    let kept: Vec<Option<usize>> = outcome.rows[0].samples[0].iter().map(|s| s.unwrap()).collect();
    assert_eq!(kept, [Some(0), Some(1)]);
}

#[test]
fn a_row_ends_when_it_is_good_enough() {
    let measured = |row: &RowSamples<Cell>| row.samples[0].iter().flatten().count();
    let outcome =
        plan().run(Ok, |row, samples| measured(samples) >= if row == 0 { 4 } else { 30 }, |_, _| None);
    assert_eq!(outcome.rows.iter().map(measured).collect::<Vec<_>>(), [4, 20]);
    assert!(!outcome.interrupted);
}

#[test]
fn a_problem_that_would_spoil_the_rest_ends_the_run() {
    let outcome = plan().run(
        |cell| if is(cell, 0, 2, 1) { Err(problem(true)) } else { Ok(cell.round) },
        |_, _| false,
        |_, _| Some(String::from("row finished")),
    );
    assert!(outcome.interrupted);
    assert_eq!(outcome.failures.len(), 1);
    assert!(outcome.rows[0].samples.iter().all(|mode| mode[3..].iter().all(Option::is_none)));
    assert!(outcome.rows[1].samples.iter().flatten().all(Option::is_none));
}

#[test]
fn every_round_has_every_mode_once_in_changing_order() {
    let cells = plan().order(0);
    assert_eq!(cells.len(), 60);
    let mut orders = std::collections::BTreeSet::new();
    for (round, cells) in cells.chunks(3).enumerate() {
        assert!(cells.iter().all(|c| c.row == 0 && c.round == Some(round)));
        assert!(cells.iter().enumerate().all(|(position, c)| c.position == position));
        let mut modes: Vec<usize> = cells.iter().map(|c| c.mode).collect();
        orders.insert(modes.clone());
        modes.sort_unstable();
        assert_eq!(modes, [0, 1, 2]);
    }
    assert!(orders.len() > 3, "{orders:?}");
}

#[test]
fn the_seed_decides_the_order() {
    assert_eq!(plan().order(1), plan().order(1));
    assert_ne!(plan().order(1), Plan { seed: 2, ..plan() }.order(1));
}

#[test]
fn a_failed_cell_is_noted_and_the_run_goes_on() {
    let mut finished = Vec::new();
    let outcome = plan().run(
        |cell| if is(cell, 1, 3, 2) { Err(problem(false)) } else { Ok((cell.mode, cell.round)) },
        |_, _| false,
        |row, _| {
            finished.push(row);
            None
        },
    );
    assert!(!outcome.interrupted);
    assert_eq!(finished, [0, 1]);
    assert_eq!(outcome.failures.len(), 1);
    assert_eq!((outcome.failures[0].row.as_str(), outcome.failures[0].mode.as_str()), ("b", "y"));
    assert_eq!(outcome.rows[1].samples[2][3], None);
    assert_eq!(outcome.rows[1].samples[2][4], Some((2, Some(4))));
    assert_eq!(outcome.rows.iter().flat_map(|r| r.samples.iter().flatten()).flatten().count(), 119);
}
