//! Reads the keys of one file into the configuration, and goes on after a problem, so that all are found at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gleaner_proto::source_text::{nearest, proposal};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::home;
use crate::keys::{Entry, Table};
use crate::origins::{Listed, Origins};
use crate::problem::{Location, Problem};
use crate::rule::missing;
use crate::value::describe;

/// The most problems that are reported of one file.
const MAX_PROBLEMS: usize = 50;
/// The most that are looked for, of which those that come first in the file are reported.
const MAX_FOUND: usize = 1000;
/// The longest name that is compared with those of the keys, in bytes.
const MAX_NAME: usize = 100;
/// The longest part of a line whose characters are counted, in bytes.
const MAX_COUNTED: usize = 4096;
/// The longest list in one file.
const MAX_ELEMENTS: usize = 1000;

/// Reads one file: what it sets replaces what the files before it have set, and the elements of its lists come before
/// theirs.
pub(crate) struct Reader<'r> {
    file: &'r Arc<Path>,
    text: &'r str,
    /// The byte at which each line starts.
    lines: Vec<usize>,
    origins: &'r mut Origins,
    /// Whether this is within an element of a list, which has its own place.
    in_list: bool,
    problems: Vec<Problem>,
}

/// Reads the text of a file into `table`. Returns its problems, in the order of their places.
pub(crate) fn read<T: Table>(
    file: &Arc<Path>,
    text: &str,
    table: &mut T,
    origins: &mut Origins,
) -> Vec<Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(newline, _)| newline + 1)).collect();
    let mut reader = Reader { file, text, lines, origins, in_list: false, problems: Vec::new() };
    let (root, errors) = DeTable::parse_recoverable(text);
    reader.keys(table, "", root.get_ref());
    let mut problems = reader.with_syntax(&errors);
    problems.sort_by_key(|problem| problem.position);
    if problems.len() > MAX_PROBLEMS {
        problems.truncate(MAX_PROBLEMS);
        problems.push(Problem::of_file(file, "there are more problems: repair these first"));
    }
    problems
}

impl Reader<'_> {
    /// A value alone: what the file says replaces what was there.
    pub(crate) fn scalar<T>(
        &mut self,
        slot: &mut T,
        entry: &Entry<'_, '_>,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) {
        match read(entry.value.get_ref()) {
            Ok(value) => {
                *slot = value;
                self.set_by(entry);
            }
            Err(message) => self.wrong(entry.key, &entry.value.span(), &message),
        }
    }

    /// A list of texts.
    pub(crate) fn texts<T>(
        &mut self,
        slot: &mut Vec<Listed<T>>,
        entry: &Entry<'_, '_>,
        read: impl Fn(&DeValue<'_>) -> Result<T, String>,
    ) {
        self.list(slot, entry, |reader, value| {
            read(value.get_ref()).map_err(|message| reader.wrong(entry.key, &value.span(), &message)).ok()
        });
    }

    /// A list of tables with a rule.
    pub(crate) fn rules<T: Table + Default>(&mut self, slot: &mut Vec<Listed<T>>, entry: &Entry<'_, '_>) {
        self.list(slot, entry, |reader, value| {
            let Some(table) = value.get_ref().as_table() else {
                let found = describe(value.get_ref());
                let unit =
                    value.get_ref().as_str().filter(|text| !text.contains('/')).unwrap_or("redis.service");
                let message = format!("expected a rule, not {found}: write {{ unit = {unit:?} }}");
                reader.wrong(entry.key, &value.span(), &message);
                return None;
            };
            let before = reader.problems.len();
            if let Some(missing) = missing(table) {
                reader.wrong(entry.key, &value.span(), &missing);
            }
            let mut element = T::default();
            reader.in_list = true;
            reader.keys(&mut element, entry.key, table);
            reader.in_list = false;
            // Half a rule would match too much.
            (reader.problems.len() == before).then_some(element)
        });
    }

    fn list<T>(
        &mut self,
        slot: &mut Vec<Listed<T>>,
        entry: &Entry<'_, '_>,
        mut read: impl FnMut(&mut Self, &Spanned<DeValue<'_>>) -> Option<T>,
    ) {
        let (key, value) = (entry.key, entry.value.get_ref());
        let Some(list) = value.as_array() else {
            let remedy = match key {
                "workload" => "[[workload]], and its keys below",
                _ => &format!("{key} = [ ... ]"),
            };
            let message = format!("expected a list, not {}: write {remedy}", describe(value));
            self.wrong(key, &entry.value.span(), &message);
            return;
        };
        if list.len() > MAX_ELEMENTS {
            let message =
                format!("has {} elements, and {MAX_ELEMENTS} are allowed: use patterns", list.len());
            self.wrong(key, &entry.at, &message);
            return;
        }
        if list.is_empty() {
            slot.clear();
            self.set_by(entry);
        }
        let mut elements = Vec::new();
        for value in list {
            let at = self.location(value.span().start);
            elements.extend(read(self, value).map(|value| Listed { value, at }));
        }
        slot.splice(0..0, elements);
    }

    /// A table with keys of its own.
    pub(crate) fn table<T: Table>(&mut self, slot: &mut T, entry: &Entry<'_, '_>) {
        let (key, value) = (entry.key, entry.value.get_ref());
        if let Some(table) = value.as_table() {
            return self.keys(slot, key, table);
        }
        let message = format!("expected a table, not {}: write [{key}], and its keys below", describe(value));
        self.wrong(key, &entry.value.span(), &message);
    }

    fn keys<T: Table>(&mut self, slot: &mut T, path: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let at = name.span();
            let name = name.get_ref();
            let key = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
            let entry = Entry { key: &key, at, value };
            if !slot.set(name, &entry, self) {
                self.wrong(&key, &entry.at, &unknown::<T>(name, value.get_ref()));
            }
        }
    }

    fn set_by(&mut self, entry: &Entry<'_, '_>) {
        if !self.in_list {
            self.origins.set(entry.key, self.location(entry.at.start));
        }
    }

    fn wrong(&mut self, key: &str, at: &Range<usize>, message: &str) {
        if self.problems.len() < MAX_FOUND {
            let at = self.location(at.start);
            self.problems.push(Problem::of_key(key, &at, message));
        }
    }

    fn location(&self, offset: usize) -> Location {
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines[line - 1];
        let before = self.text.get(start..offset).filter(|before| before.len() <= MAX_COUNTED);
        let column = 1 + before.map_or(offset - start, |before| before.chars().count());
        Location { file: Arc::clone(self.file), line, column }
    }

    /// All problems, those of the TOML itself included. A line has problems of one kind: if it is no TOML, it can seem
    /// to say what it does not; but for a word without quotes, what its key expects says more.
    fn with_syntax(mut self, errors: &[toml::de::Error]) -> Vec<Problem> {
        let line = |problem: &Problem| problem.position.map_or(0, |(line, _)| line);
        let expected: BTreeSet<usize> = self.problems.iter().map(line).collect();
        let mut syntax = BTreeMap::new();
        for error in errors.iter().take(MAX_FOUND) {
            let span = error.span().unwrap_or_default();
            let at = self.location(span.start);
            let text = self.text.get(span).unwrap_or_default();
            let unquoted = error.message().starts_with("string values must be quoted");
            if unquoted && !text.is_empty() && expected.contains(&at.line) {
                continue;
            }
            let message = match text {
                "" if unquoted => "the key has no value: write one behind the `=`".to_owned(),
                text if unquoted || error.message() == "invalid datetime" => {
                    format!("`{text}` needs quotes: write \"{text}\"")
                }
                _ => format!("this is not TOML: {}", error.message()),
            };
            // What comes after the first one in a line is often its consequence.
            syntax.entry(at.line).or_insert_with(|| Problem::at(&at, &message));
        }
        self.problems.retain(|problem| !syntax.contains_key(&line(problem)));
        self.problems.extend(syntax.into_values());
        self.problems
    }
}

/// What to write in place of a key that does not exist.
fn unknown<T: Table>(name: &str, value: &DeValue<'_>) -> String {
    let names = T::names();
    if let Some(home) = home(name).filter(|_| !value.is_table()) {
        return format!("there is no such key here: it belongs {home}");
    }
    let short = Some(name).filter(|name| name.len() <= MAX_NAME);
    let remedy = match short.and_then(|name| nearest(name, names.iter().map(String::as_str))) {
        Some(nearest) => proposal(Some(nearest)),
        None => format!(": there are {}", names.join(", ")),
    };
    format!("there is no such key{remedy}")
}
