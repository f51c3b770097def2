//! What is written about the keys is what they are: the schema, the packaged file, the manual page, the reference.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may what it uses")]

mod common;

use std::fs;
use std::path::Path;

use common::Tree;
use gleaner_config::{Config, schema};
use serde_json::Value;

/// A key as the schema has it.
struct Key {
    /// With the tables that it is in.
    name: String,
    kind: String,
    /// `None` for those of a rule and of `[[workload]]`.
    default: Option<Value>,
    description: String,
}

/// All keys, in the order of the schema's.
fn keys() -> Vec<Key> {
    let schema = schema();
    let mut keys = Vec::new();
    collect(&schema, &schema, "", &mut keys);
    keys
}

fn collect(schema: &Value, table: &Value, path: &str, keys: &mut Vec<Key>) {
    for (name, property) in table["properties"].as_object().unwrap() {
        let resolve = |value: &Value| match value["$ref"].as_str() {
            Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap().clone(),
            None => value.clone(),
        };
        let kind = resolve(property);
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let elements = resolve(&kind["items"]);
        if kind["type"] == "object" {
            collect(schema, &kind, &path, keys);
            continue;
        }
        keys.push(Key {
            name: path.clone(),
            kind: kind["type"].as_str().unwrap().to_owned(),
            default: property.get("default").cloned(),
            description: property["description"].as_str().unwrap().to_owned(),
        });
        if name == "workload" {
            collect(schema, &elements, "workload", keys);
        }
    }
}

fn repository(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_schema_changes_on_purpose_only() {
    insta::assert_snapshot!("schema", serde_json::to_string_pretty(&schema()).unwrap());
}

#[test]
fn the_packaged_file_has_every_key_with_its_default_and_changes_nothing() {
    let packaged = repository("packaging/gleaner.toml");
    assert_eq!(Tree::with(&packaged).load().unwrap().config, Config::default());

    // `#key = value` is a default, `# text` is not.
    let is_default = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
    let defaults: Vec<&str> = packaged.lines().filter(is_default).map(|line| &line[1..]).collect();
    let all = Tree::with(&defaults.join("\n")).load().unwrap();
    assert_eq!(all.config, Config::default());
    for key in keys().into_iter().filter(|key| !key.name.starts_with("workload")) {
        assert!(all.origins.of(&key.name).is_some(), "{} is missing in packaging/gleaner.toml", key.name);
        // The line before says what it is.
        let name = key.name.rsplit('.').next().unwrap();
        let at = packaged.lines().position(|line| line.starts_with(&format!("#{name} = "))).unwrap();
        assert_eq!(packaged.lines().nth(at - 1).unwrap(), format!("# {}", plain(&key.description)));
    }
    // Each line alone, too.
    let mut header = String::new();
    for line in defaults {
        if line.starts_with('[') {
            header = format!("{line}\n");
            continue;
        }
        assert_eq!(
            Tree::with(&format!("{header}{line}\n")).load().unwrap().config,
            Config::default(),
            "{line}"
        );
    }
}

/// A description without marks.
fn plain(description: &str) -> String {
    description.replace('`', "")
}

#[test]
fn the_manual_page_has_every_key() {
    let page = repository("packaging/man/gleaner.toml.5");
    for key in keys() {
        let name = key.name.rsplit('.').next().unwrap().replace('-', "\\-");
        let is_there =
            page.lines().any(|line| line.starts_with(".B") && line.split_whitespace().nth(1) == Some(&name));
        assert!(is_there, "{} is missing in packaging/man/gleaner.toml.5", key.name);
    }
}

#[test]
fn the_reference_has_a_table_of_all_keys() {
    let page = repository("docs/config.md");
    let row = |key: &Key| {
        let default = key.default.as_ref().map_or_else(|| "-".to_owned(), |value| format!("`{value}`"));
        format!("| `{}` | {} | {default} | {} |", key.name, key.kind, key.description)
    };
    let table: Vec<String> = keys().iter().map(row).collect();
    let table = format!("| key | type | default | |\n|---|---|---|---|\n{}\n", table.join("\n"));
    assert!(page.contains(&table), "docs/config.md needs this table of keys:\n\n{table}");
}

#[test]
fn every_example_of_the_reference_is_a_configuration() {
    let page = repository("docs/config.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 3);
    for example in examples {
        let loaded = Tree::with(example).load();
        assert!(
            loaded.is_ok_and(|loaded| loaded.warnings.is_empty() && loaded.config != Config::default()),
            "{example}"
        );
    }
}

/// Each key set to something else than its default.
const ALL: &str = include_str!("all.toml");

#[test]
fn every_key_can_be_set_and_shown_with_its_origin() {
    let tree = Tree::with(ALL);
    let loaded = tree.load().unwrap();
    let json = loaded.to_json();
    for key in keys() {
        let value = match key.name.strip_prefix("workload.") {
            Some(name) => &json["config"]["workload"][0][name],
            None => key.name.split('.').fold(&json["config"], |table, name| &table[name]),
        };
        assert!(!value.is_null() && Some(value) != key.default.as_ref(), "{} in tests/all.toml", key.name);
        let origin = json["origins"].get(&key.name).is_some() || key.name.starts_with("workload.");
        assert!(origin, "{} has no origin", key.name);
    }
    insta::assert_snapshot!("shown", tree.hide(&loaded.to_toml(true)));
    insta::assert_snapshot!("shown-json", tree.hide(&serde_json::to_string_pretty(&json).unwrap()));
    insta::assert_snapshot!("shown-defaults", Tree::new().load().unwrap().to_toml(true));
}
