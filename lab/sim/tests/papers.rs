//! The papers' tables and figures as scenario files: each can be swept, and the documentation lists them all.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use gleaner_engine::Journal;
use gleaner_sim::reproduce::FILES;
use gleaner_sim::sweep::Sweep;
use gleaner_sim::{End, Ns};

/// Long enough for every program to synchronise a few times.
const SHORT: Ns = 3_000_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The papers' scenario files, by name.
fn files() -> Vec<(String, String)> {
    let papers = ["atc14-", "asplos13-", "hp3c20-", "tpds21-"];
    let paths = fs::read_dir(root().join("lab/sim/scenarios")).unwrap().map(|f| f.unwrap().path());
    let mut files: Vec<(String, String)> = paths
        .map(|p| (p.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(p).unwrap()))
        .filter(|(name, _)| papers.iter().any(|p| name.starts_with(p)))
        .collect();
    files.sort();
    files
}

#[test]
fn every_value_of_every_axis_can_be_built_and_the_first_and_last_combination_run() {
    let files = files();
    assert_eq!(files.len(), FILES.len());
    for (name, text) in files {
        assert_eq!(
            FILES.iter().find(|(known, _)| *known == name).unwrap().1,
            text,
            "`reproduce` reads {name}"
        );
        let sweep = Sweep::parse(&name, text, Vec::new()).unwrap();
        for axis in sweep.axes() {
            for value in &axis.values {
                sweep.scenario(sweep.point(&[(&axis.key, value.clone())]).unwrap()).unwrap();
            }
        }
        for point in [0, sweep.points() - 1] {
            let mut scenario = sweep.scenario(point).unwrap();
            scenario.spec.time_limit = SHORT;
            let outcome = scenario.run(None, &mut Journal::disabled()).unwrap();
            assert!(matches!(outcome.end, End::TimeLimit | End::Finished), "{name}: {}", outcome.end);
            assert!(outcome.report.vms.iter().any(|vm| vm.tasks[0].totals.cpu > 0), "{name}");
        }
    }
}

#[test]
fn the_documentation_names_every_file_with_its_figure() {
    let docs = fs::read_to_string(root().join("docs/sim.md")).unwrap();
    let table =
        docs.split("## The papers' figures as scenarios").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: String = table.lines().filter(|l| l.starts_with('|')).collect();
    let named: BTreeSet<&str> = rows.split('`').skip(1).step_by(2).filter(|n| !n.contains('/')).collect();
    let files = files();
    assert_eq!(named, files.iter().map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>());
    for (name, text) in &files {
        assert!(text.contains("source = "), "{name} does not say what it is of");
    }
}
