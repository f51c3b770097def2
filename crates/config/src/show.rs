//! The configuration as text: TOML that can be read again, JSON, and the JSON schema.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;
use toml::{Table, Value};

use crate::config::Config;
use crate::keys::Table as _;
use crate::load::Loaded;
use crate::problem::Location;
use crate::rule::Workload;

/// Where comments start at most, in characters.
const MAX_COLUMN: usize = 40;

/// The JSON schema of a file.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Config).into()
}

/// A line of the text, and where its value comes from.
struct Line {
    text: String,
    origin: Option<String>,
}

impl Line {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), origin: None }
    }

    fn with(text: impl Into<String>, origin: Option<&Location>) -> Self {
        let origin = origin.map_or_else(|| "default".to_owned(), ToString::to_string);
        Self { text: text.into(), origin: Some(origin) }
    }
}

impl Loaded {
    /// The configuration as one file, which means the same; with comments that say where each value comes from.
    pub fn to_toml(&self, origins: bool) -> String {
        let lines = self.lines();
        let column = lines.iter().map(|line| line.text.chars().count()).max().unwrap_or(0).min(MAX_COLUMN);
        let text = |line: Line| match line.origin.filter(|_| origins) {
            Some(origin) => format!("{:column$}  # {origin}\n", line.text),
            None => line.text + "\n",
        };
        lines.into_iter().map(text).collect()
    }

    /// The configuration, the files that were read, and where each value comes from, as JSON. What is missing among the
    /// origins has its default.
    pub fn to_json(&self) -> serde_json::Value {
        let lists = Config::names().into_iter().map(|name| (self.elements(&name), name));
        let elements: BTreeMap<_, _> =
            lists.filter(|(at, _)| !at.is_empty()).map(|(at, name)| (name, json!(at))).collect();
        let mut origins = json!(self.origins);
        if let Some(origins) = origins.as_object_mut() {
            origins.extend(elements);
        }
        let files: Vec<_> = self.files.iter().map(|file| file.to_string_lossy()).collect();
        json!({ "config": self.config, "files": files, "origins": origins })
    }

    fn lines(&self) -> Vec<Line> {
        let (mut lines, mut tables) = (Vec::new(), Vec::new());
        let values = table(&self.config);
        for (name, value) in in_order(&Config::names(), &values) {
            match value {
                Value::Table(table) => {
                    tables.extend([Line::new(""), Line::new(format!("[{name}]"))]);
                    let line = |(key, value): (&String, &Value)| {
                        Line::with(format!("{key} = {value}"), self.origins.of(&format!("{name}.{key}")))
                    };
                    tables.extend(table.iter().map(line));
                }
                Value::Array(_) if name == "workload" => self.workloads(&mut tables),
                Value::Array(elements) if !elements.is_empty() => {
                    lines.push(Line::new(format!("{name} = [")));
                    let elements = elements.iter().zip(self.elements(name));
                    lines.extend(elements.map(|(value, at)| Line::with(format!("    {value},"), Some(at))));
                    lines.push(Line::new("]"));
                }
                value => lines.push(Line::with(format!("{name} = {value}"), self.origins.of(name))),
            }
        }
        lines.append(&mut tables);
        lines
    }

    fn workloads(&self, lines: &mut Vec<Line>) {
        let names = Workload::names();
        for workload in &self.config.workload {
            lines.extend([Line::new(""), Line::with("[[workload]]", Some(&workload.at))]);
            let values = table(&workload.value);
            let keys = in_order(&names, &values);
            lines.extend(keys.map(|(key, value)| Line::new(format!("{key} = {value}"))));
        }
    }

    /// Where the elements of a list come from.
    fn elements(&self, name: &str) -> Vec<&Location> {
        let config = &self.config;
        match name {
            "include" => config.include.iter().map(|rule| &rule.at).collect(),
            "exclude" => config.exclude.iter().map(|rule| &rule.at).collect(),
            "quiet-hours" => config.quiet_hours.iter().map(|hours| &hours.at).collect(),
            "workload" => config.workload.iter().map(|workload| &workload.at).collect(),
            _ => Vec::new(),
        }
    }
}

/// A table of the configuration as its file has it.
fn table(of: &impl Serialize) -> Table {
    // All keys are texts, and all values are what TOML has.
    Table::try_from(of).unwrap_or_default()
}

/// The keys that are there, in the order of their definition.
fn in_order<'t>(names: &'t [String], table: &'t Table) -> impl Iterator<Item = (&'t String, &'t Value)> {
    names.iter().filter_map(|name| table.get_key_value(name))
}
