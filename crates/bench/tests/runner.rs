//! The order of the interleaved runner and what it does with failures.

use gleaner_bench::runner::{Cell, Plan, Problem};

fn plan() -> Plan {
    Plan {
        rows: ["a", "b"].map(String::from).to_vec(),
        modes: ["default", "x", "y"].map(String::from).to_vec(),
        rounds: 20,
        seed: 1,
    }
}

fn problem(ends_run: bool) -> Problem {
    Problem { message: String::from("no such server"), ends_run }
}

#[test]
fn a_problem_that_would_spoil_the_rest_ends_the_run() {
    let broken = Cell { row: 0, round: 2, mode: 1 };
    let outcome = plan().run(
        |cell| if cell == broken { Err(problem(true)) } else { Ok(cell.round) },
        |_, _| String::from("row finished"),
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
        assert!(cells.iter().all(|c| c.row == 0 && c.round == round));
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
    let broken = Cell { row: 1, round: 3, mode: 2 };
    let mut finished = Vec::new();
    let outcome = plan().run(
        |cell| if cell == broken { Err(problem(false)) } else { Ok((cell.mode, cell.round)) },
        |row, _| {
            finished.push(row);
            String::from("row finished")
        },
    );
    assert!(!outcome.interrupted);
    assert_eq!(finished, [0, 1]);
    assert_eq!(outcome.failures.len(), 1);
    assert_eq!((outcome.failures[0].row.as_str(), outcome.failures[0].mode.as_str()), ("b", "y"));
    assert_eq!(outcome.rows[1].samples[2][3], None);
    assert_eq!(outcome.rows[1].samples[2][4], Some((2, 4)));
    assert_eq!(outcome.rows.iter().flat_map(|r| r.samples.iter().flatten()).flatten().count(), 119);
}
