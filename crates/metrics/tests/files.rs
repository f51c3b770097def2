//! The files that name metrics know no others: the dashboard, the alerts and the page.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::Script;
use gleaner_metrics::Definition;

/// The names in a text that only metrics of ours can have.
fn names(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("gleaner_") || word.starts_with("process_"))
        .collect()
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_that_exist() {
    let script = Script::new(8);
    let defined: BTreeSet<String> = script
        .metrics
        .definitions()
        .iter()
        .flat_map(|d| match d.kind {
            "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{}{end}", d.name)).to_vec(),
            _ => vec![d.name.clone()],
        })
        .collect();
    let queries = common::queries();
    assert!(queries.len() > 20, "{queries:?}");
    let read = |file: &str| std::fs::read_to_string(root().join(file)).unwrap();
    let texts = [
        queries.join("\n"),
        read("packaging/grafana/gleaner.json"),
        read("packaging/prometheus/gleaner.rules.yml"),
    ];
    for name in texts.iter().flat_map(|text| names(text)) {
        assert!(defined.contains(name), "{name} is not defined");
    }
}

#[test]
fn the_dashboard_has_no_panel_on_another() {
    let dashboard = std::fs::read(root().join("packaging/grafana/gleaner.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_slice(&dashboard).unwrap();
    let mut cells = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert_eq!(cells.insert(cell, &panel["title"]), None, "{panel}");
        }
    }
}

#[test]
fn the_page_names_every_metric_with_its_labels() {
    let mut script = Script::new(8);
    script.step();
    let exposition = script.encode();
    let labels = |name: &str| {
        let of = |sample: &&str| sample.strip_suffix("_count").unwrap_or(sample) == name;
        let samples = exposition.lines().filter_map(|line| line.split_once('{'));
        let labels =
            samples.filter(|(sample, _)| of(sample)).map(|(_, labels)| labels).next().unwrap_or_default();
        let names = labels.split(',').filter_map(|label| label.split_once('='));
        names.map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let row = |d: &Definition| format!("| `{}` | {} | {} | {} |\n", d.name, d.kind, labels(&d.name), d.help);
    let rows: String = script.metrics.definitions().iter().map(row).collect();
    let table = format!("| name | type | labels | what |\n|---|---|---|---|\n{rows}");
    let page = std::fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    assert!(
        page.contains(&format!("files.rs -->\n\n{table}\n<!-- end -->")),
        "docs/metrics.md must have this table:\n{table}"
    );
}

#[test]
fn every_alert_is_on_the_page_and_has_a_section_in_the_runbook() {
    let read = |file: &str| std::fs::read_to_string(root().join(file));
    let rules = read("packaging/prometheus/gleaner.rules.yml").unwrap();
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    let page = read("docs/metrics.md").unwrap();
    let operations = read("docs/operations.md");
    if operations.is_err() {
        gleaner_testing::left_out("there is no docs/operations.md that the alerts could point to");
    }
    for alert in &alerts {
        let field = |name: &str| alert.split_once(name).unwrap().1.lines().next().unwrap().trim();
        let name = alert.lines().next().unwrap();
        let row = format!("| `{name}` | {} |", field("severity: "));
        assert!(page.contains(&row), "docs/metrics.md has no row `{row}`");
        let anchor = field("runbook: docs/operations.md#");
        if let Ok(operations) = &operations {
            let headings = operations.lines().filter_map(|line| line.strip_prefix('#'));
            let is_there = headings
                .map(|h| h.trim_matches(['#', ' ']).to_lowercase().replace(' ', "-"))
                .any(|h| h == anchor);
            assert!(is_there, "docs/operations.md has no section #{anchor}, which {name} points to");
        }
    }
    assert_eq!(page.matches("| `Gleaner").count(), alerts.len(), "docs/metrics.md names another alert");
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
