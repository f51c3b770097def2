//! Runs `gleaner-sim reproduce` once on all papers, and compares everything that is claimed about them.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const STATES: [&str; 4] = ["fitted", "development", "test", "not-modelled"];

/// Rows that count, evidence, and reproduced without the mechanism, too.
#[derive(Debug, Default, PartialEq)]
struct Score {
    rows: usize,
    evidence: usize,
    also_without: usize,
}

/// Whether `found` agrees with what the row states.
fn agrees(row: &Value, found: &Value) -> bool {
    let value = || row["value"].as_f64().unwrap();
    let number = found.as_f64();
    match row["kind"].as_str().unwrap() {
        "direction" => found.as_bool() == Some(true),
        "value" => number.is_some_and(|n| (n - value()).abs() <= 0.25 * value().abs()),
        "lower" => number.is_some_and(|n| n >= value()),
        "upper" => number.is_some_and(|n| n <= value()),
        kind => panic!("{kind}"),
    }
}

fn score(rows: &[&Value], state: &str) -> Score {
    let mut score = Score::default();
    for row in rows.iter().filter(|r| r["state"] == state && r["repeats"].is_null()) {
        score.rows += 1;
        if agrees(row, &row["simulated"]) {
            let anyway = agrees(row, &row["without"]);
            score.also_without += usize::from(anyway);
            score.evidence += usize::from(!anyway);
        }
    }
    score
}

/// The row of docs/sim.md that starts with `name`: a cell for each state, `evidence + also without of rows`.
fn documented(docs: &str, name: &str) -> Vec<Score> {
    let mut table = docs.lines().skip_while(|l| !l.starts_with("| paper | fitted"));
    let row = table.find(|l| l.starts_with(&format!("| {name} |"))).unwrap_or_else(|| panic!("{name}"));
    let cell = |cell: &str| {
        let numbers: Vec<usize> =
            cell.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        match numbers[..] {
            [evidence, also_without, rows] => Score { rows, evidence, also_without },
            [rows] => Score { rows, ..Score::default() },
            _ => panic!("{row}"),
        }
    };
    row.split('|').skip(2).take(4).map(cell).collect()
}

#[test]
fn the_documentation_states_the_score_that_the_simulation_gives() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a/new/folder");
    let output = Command::new(env!("CARGO_BIN_EXE_gleaner-sim"))
        .args(["reproduce", "--json", "-o", out.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let papers: Vec<&Value> = report["papers"].as_array().unwrap().iter().collect();
    let names: Vec<&str> = papers.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["atc14", "asplos13", "hp3c20", "tpds21"]);

    let rows = |papers: &[&'_ Value]| -> Vec<Value> {
        papers.iter().flat_map(|p| p["rows"].as_array().unwrap().clone()).collect()
    };
    let all = rows(&papers);
    for row in &all {
        // A run that did not end, or a ratio to nothing, is null, which counts as missed.
        let modelled = row["state"] != "not-modelled" && row["repeats"].is_null();
        assert!(modelled || (row["simulated"].is_null() && row["without"].is_null()), "{row}");
        // Claims about Gleaner are made for both strategies; all others are not.
        assert!(row["adaptive"].is_null() || row["off"] == "gleaner", "{row}");
    }
    let both = all.iter().filter(|row| !row["adaptive"].is_null()).count();
    assert!(both > 40, "{both} rows have the strategy adaptive beside paper");

    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sim.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let papers_by_name = ["ATC'14", "ASPLOS'13", "HP3C'20", "TPDS'21"].into_iter().zip(&papers);
    let by_paper = papers_by_name.map(|(name, paper)| (name, rows(&[*paper])));
    for (name, rows) in by_paper.chain([("all", all.clone())]) {
        let rows: Vec<&Value> = rows.iter().collect();
        let found: Vec<Score> = STATES.iter().map(|state| score(&rows, state)).collect();
        assert_eq!(documented(&docs, name), found, "docs/sim.md on {name}");
    }
    let exchanged: Vec<&Value> = all.iter().filter(|row| !row["exchanged"].is_null()).collect();
    let own = exchanged.iter().filter(|row| agrees(row, &row["simulated"])).count();
    let other = exchanged.iter().filter(|row| agrees(row, &row["exchanged"])).count();
    let sentence = format!("{} rows about programs with a fitted parameter, {own} are", exchanged.len());
    let docs = docs.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(docs.contains(&sentence), "docs/sim.md does not say: {sentence}");
    assert!(docs.contains(&format!("and {other} with the mean")), "{other}");

    let figures: usize = papers.iter().map(|p| p["figures"].as_array().unwrap().len()).sum();
    let svgs = std::fs::read_dir(&out).unwrap().map(|f| f.unwrap().path());
    let svgs: Vec<_> = svgs.filter(|f| f.extension().is_some_and(|e| e == "svg")).collect();
    assert_eq!(svgs.len(), figures + papers.len(), "each figure has a file of its own");
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    assert!(papers.iter().all(|p| page.contains(p["title"].as_str().unwrap())));
    let saved: Value =
        serde_json::from_slice(&std::fs::read(out.join("reproduction.json")).unwrap()).unwrap();
    assert_eq!(saved, report);
}

#[test]
fn a_folder_that_cannot_be_made_is_reported_before_anything_is_simulated() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_gleaner-sim"))
        .args(["reproduce", "-o", file.path().join("below").to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("cannot make the folder") && error.contains("below"), "{error}");
    // Any progress of the simulation would be reported line by line.
    assert!(output.stdout.is_empty() && error.lines().count() == 1, "{error}");
}
