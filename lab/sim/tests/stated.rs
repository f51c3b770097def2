//! The rows of what the papers state (`lab/sim/papers/rows.csv`) are complete in form, and each of them stands once.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::collections::BTreeMap;
use std::path::Path;

use gleaner_sim::reproduce::{Kind, Off, State, Statement};

fn rows() -> Vec<Statement> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("papers/rows.csv");
    csv::Reader::from_path(file).unwrap().deserialize().collect::<Result<_, _>>().unwrap()
}

#[test]
fn every_row_says_what_it_expects_and_how_it_stands() {
    let rows = rows();
    for (paper, least) in [("atc14", 270), ("asplos13", 260), ("hp3c20", 80), ("tpds21", 370)] {
        let count = rows.iter().filter(|row| row.paper == paper).count();
        assert!(count >= least, "{paper}: {count} rows");
    }
    let mut by_id = BTreeMap::new();
    for row in &rows {
        assert!(by_id.insert((&row.paper, &row.id), row).is_none(), "{} {} stands twice", row.paper, row.id);
    }
    for row in &rows {
        assert!(!row.place.is_empty() && row.says.chars().count() <= 140, "{row:?}");
        let is_number = row.kind != Kind::Direction;
        assert_eq!((row.value.is_some(), row.unit.is_some()), (is_number, is_number), "{row:?}");
        assert_eq!(row.expects.is_some(), !is_number, "{row:?}");
        match &row.repeats {
            // What repeats another row counts where that one does.
            Some(other) => {
                let other = by_id[&(&row.paper, other)];
                assert!(other.repeats.is_none() && other.state == row.state && row.off.is_none(), "{row:?}");
            }
            None if row.state == State::NotModelled => assert!(row.note.is_some(), "{row:?}"),
            None => {
                let off = row.off.as_deref().unwrap_or_default();
                assert!(off.parse::<Off>().is_ok(), "{row:?}");
            }
        }
        assert!(row.state != State::Fitted || row.repeats.is_some() || row.note.is_some(), "{row:?}");
    }
}
