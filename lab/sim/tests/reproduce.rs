//! Runs `gleaner-sim reproduce` once on all papers, and compares everything that is claimed about them.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// How many of `all` satisfy `holds`, and how many there are.
fn score(all: &[&Value], holds: impl Fn(&Value) -> bool) -> (usize, usize) {
    (all.iter().filter(|v| holds(v)).count(), all.len())
}

fn near(number: &Value) -> bool {
    let (paper, simulated) = (number["paper"].as_f64().unwrap(), number["simulated"].as_f64());
    simulated.is_some_and(|s| (s / paper - 1.0).abs() <= 0.25)
}

fn items<'a>(papers: &[&'a Value], kind: &str) -> Vec<&'a Value> {
    papers.iter().flat_map(|p| p[kind].as_array().unwrap()).collect()
}

/// Scores of the held-out and fitted numbers and of the directions.
fn scores(papers: &[&Value]) -> [(usize, usize); 3] {
    let numbers = items(papers, "numbers");
    let with = |basis: &str| -> Vec<&Value> {
        numbers.iter().filter(|n| n["basis"].as_str() == Some(basis)).copied().collect()
    };
    let directions = score(&items(papers, "directions"), |d| d["holds"].as_bool().unwrap());
    [score(&with("held-out"), near), score(&with("fitted"), near), directions]
}

/// The row of docs/sim.md that starts with `name`, as pairs of numbers.
fn documented(docs: &str, name: &str) -> [(usize, usize); 3] {
    let mut table = docs.lines().skip_while(|l| !l.starts_with("| paper | held out"));
    let row = table.find(|l| l.starts_with(&format!("| {name} |"))).unwrap_or_else(|| panic!("{name}"));
    let cells: Vec<(usize, usize)> = row
        .split('|')
        .filter_map(|cell| cell.trim().split_once(" of "))
        .map(|(n, m)| (n.parse().unwrap(), m.parse().unwrap()))
        .collect();
    cells.try_into().unwrap()
}

/// A number says where the paper states it, and whether the model was fitted to it.
#[track_caller]
fn assert_has_place_and_split(number: &Value) {
    let place = number["place"].as_str().unwrap();
    assert!(["Table ", "Figure ", "§"].iter().any(|start| place.starts_with(start)), "{number}");
    assert!(["held-out", "fitted"].contains(&number["basis"].as_str().unwrap()), "{number}");
    assert!(number["paper"].as_f64().unwrap() > 0.0, "{number}");
    // If something never happened in the simulation, its ratio is null, which counts as missed.
    let simulated = &number["simulated"];
    assert!(
        simulated.is_number()
            || (simulated.is_null() && number.as_object().unwrap().contains_key("simulated")),
        "{number}"
    );
}

#[test]
fn every_number_has_its_place_and_split_and_the_documentation_promises_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a/new/folder");
    let output = Command::new(env!("CARGO_BIN_EXE_gleaner-sim"))
        .args(["reproduce", "--json", "-o", out.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["seed"], 1);
    let papers: Vec<&Value> = report["papers"].as_array().unwrap().iter().collect();
    let names: Vec<&str> = papers.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["atc14", "asplos13", "hp3c20", "tpds21"]);

    let numbers = items(&papers, "numbers");
    assert!(numbers.len() >= 60, "{} numbers", numbers.len());
    numbers.into_iter().for_each(assert_has_place_and_split);
    assert!(papers.iter().all(|p| !p["not_modelled"].as_array().unwrap().is_empty()));

    // Claims about Gleaner are made for both strategies; all others are not.
    for (kind, with_gleaner) in [("numbers", 14), ("directions", 12)] {
        for (paper, expected) in papers.iter().zip([with_gleaner, 0, 0, 0]) {
            let both = items(&[*paper], kind);
            let both = both.iter().filter(|item| !item["strategy_paper"].is_null()).count();
            assert_eq!(both, expected, "{kind} of {}", paper["name"]);
        }
    }

    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sim.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let rows = ["ATC'14", "ASPLOS'13", "HP3C'20", "TPDS'21"].into_iter().zip(&papers);
    let rows = rows.map(|(name, paper)| (name, scores(&[*paper])));
    for (name, found) in rows.chain([("all", scores(&papers))]) {
        let claimed = documented(&docs, name);
        let kept =
            claimed.iter().zip(&found).all(|(claimed, found)| claimed.1 == found.1 && claimed.0 <= found.0);
        assert!(kept, "docs/sim.md says {claimed:?} of {name}, it is {found:?}");
    }

    let figures = items(&papers, "figures").len() + papers.len();
    let svgs = std::fs::read_dir(&out).unwrap().map(|f| f.unwrap().path());
    let svgs: Vec<_> = svgs.filter(|f| f.extension().is_some_and(|e| e == "svg")).collect();
    assert_eq!(svgs.len(), figures, "each figure has a file of its own");
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
