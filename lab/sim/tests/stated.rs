//! The rows of what the papers state (`lab/sim/papers`) are complete in form, and each of them stands once.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Paper {
    row: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    place: String,
    says: String,
    kind: Kind,
    value: Option<f64>,
    high: Option<f64>,
    unit: Option<String>,
    expects: Option<String>,
    state: State,
    scored_as: Option<String>,
    reason: Option<String>,
    #[expect(dead_code, reason = "for readers")]
    note: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Value,
    AtLeast,
    AtMost,
    Range,
    Direction,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Fitted,
    Development,
    NotModelled,
}

#[test]
fn every_row_says_what_it_expects_and_how_it_stands() {
    for (paper, least) in [("atc14", 270), ("asplos13", 260), ("hp3c20", 80), ("tpds21", 370)] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("papers").join(paper).with_extension("toml");
        let Paper { row: rows } = toml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert!(rows.len() >= least, "{paper}: {} rows", rows.len());
        let mut ids = BTreeSet::new();
        for row in &rows {
            assert!(ids.insert(&row.id), "{paper}: {} stands twice", row.id);
            assert!(!row.place.is_empty() && row.says.chars().count() <= 140, "{paper}: {row:?}");
            let is_number = row.kind != Kind::Direction;
            assert_eq!((row.value.is_some(), row.unit.is_some()), (is_number, is_number), "{paper}: {row:?}");
            assert_eq!(row.high.is_some(), row.kind == Kind::Range, "{paper}: {row:?}");
            assert_eq!(row.expects.is_some(), !is_number, "{paper}: {row:?}");
            let explained = row.reason.is_some() && row.scored_as.is_none();
            assert!(row.state != State::NotModelled || explained, "{paper}: {row:?}");
        }
    }
}
