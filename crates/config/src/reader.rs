//! Reads the keys of one file into the configuration, and goes on after a problem, so that all are found at once.
//!
//! `keys!` is the one definition of a table: its keys, their types, defaults, descriptions and how they are read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use gleaner_proto::source_text::{nearest, proposal};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::home;
use crate::problem::{Location, Problem};
use crate::value::describe;

/// The most problems that are reported of one file.
const MAX_PROBLEMS: usize = 50;
/// The longest list in one file.
const MAX_ELEMENTS: usize = 1000;

/// Which files and lines have set the keys that are a value alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Origins(BTreeMap<String, Location>);

impl Origins {
    /// Where a key such as `metrics.listen` has its value from; `None` is the default.
    pub fn of(&self, key: &str) -> Option<&Location> {
        self.0.get(key)
    }
}

/// A key and its value.
pub(crate) struct Entry<'e, 't> {
    /// With the tables that it is in, `metrics.listen`.
    pub(crate) key: &'e str,
    /// The key's place in the text, in bytes.
    pub(crate) at: Range<usize>,
    pub(crate) value: &'e Spanned<DeValue<'t>>,
}

/// An element of a list, with the place that it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed<T> {
    /// The element.
    pub value: T,
    /// Where it is written.
    pub at: Location,
}

impl<T> Deref for Listed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Serialize> Serialize for Listed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Listed<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}

/// A table of the file.
pub(crate) trait Table {
    /// The names of its keys.
    fn names() -> Vec<String>;

    /// Reads a key. Returns `false` if there is none of this name.
    fn set(&mut self, name: &str, entry: &Entry<'_, '_>, reader: &mut Reader<'_>) -> bool;
}

/// Defines a table. Each key says by which method of [`Reader`] it is read, and what that needs besides. The keys of
/// another table can be among its own.
macro_rules! keys {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(also $inner:ident: $table:ty,)?
            $($(#[$doc:meta])* pub $field:ident: $type:ty = $default:expr, $read:ident $(($how:expr))?;)*
        }
    ) => {
        #[derive(Debug, Clone, PartialEq, serde::Serialize, schemars::JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        #[schemars(default, deny_unknown_fields)]
        $(#[$meta])*
        pub struct $name {
            $(
                /// What it applies to.
                #[serde(flatten)]
                pub $inner: $table,
            )?
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($inner: <$table>::default(),)? $($field: $default,)* }
            }
        }

        impl $crate::reader::Table for $name {
            fn names() -> Vec<String> {
                let mut names: Vec<String> = Vec::new();
                $(names.extend(<$table as $crate::reader::Table>::names());)?
                names.extend([$($crate::reader::kebab(stringify!($field))),*]);
                names
            }

            fn set(
                &mut self,
                name: &str,
                entry: &$crate::reader::Entry<'_, '_>,
                reader: &mut $crate::reader::Reader<'_>,
            ) -> bool {
                $(if name == $crate::reader::kebab(stringify!($field)) {
                    reader.$read(&mut self.$field, entry $(, $how)?);
                    return true;
                })*
                false $(|| self.$inner.set(name, entry, reader))?
            }
        }
    };
}
pub(crate) use keys;

/// A field's name as a key.
pub(crate) fn kebab(field: &str) -> String {
    field.replace('_', "-")
}

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
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    if more > 0 {
        problems.truncate(MAX_PROBLEMS);
        problems.push(Problem::of_file(file, format!("there are {more} more problems: repair these first")));
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
            Err(message) => self.wrong(entry.key, &entry.value.span(), message),
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
            read(value.get_ref()).map_err(|message| reader.wrong(entry.key, &value.span(), message)).ok()
        });
    }

    /// A list of tables, each of which must have what `missing` asks for.
    pub(crate) fn tables<T: Table + Default>(
        &mut self,
        slot: &mut Vec<Listed<T>>,
        entry: &Entry<'_, '_>,
        missing: impl Fn(&DeTable<'_>) -> Option<String>,
    ) {
        self.list(slot, entry, |reader, value| {
            let Some(table) = value.get_ref().as_table() else {
                let found = describe(value.get_ref());
                let unit =
                    value.get_ref().as_str().filter(|text| !text.contains('/')).unwrap_or("redis.service");
                let message = format!("expected a rule, not {found}: write {{ unit = {unit:?} }}");
                reader.wrong(entry.key, &value.span(), message);
                return None;
            };
            let before = reader.problems.len();
            if let Some(missing) = missing(table) {
                reader.wrong(entry.key, &value.span(), missing);
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
            let remedy = if key == "workload" {
                "[[workload]], and its keys below"
            } else {
                &format!("{key} = [ ... ]")
            };
            self.wrong(
                key,
                &entry.value.span(),
                format!("expected a list, not {}: write {remedy}", describe(value)),
            );
            return;
        };
        if list.len() > MAX_ELEMENTS {
            let message =
                format!("has {} elements, and {MAX_ELEMENTS} are allowed: use patterns", list.len());
            self.wrong(key, &entry.at, message);
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
        self.wrong(key, &entry.value.span(), message);
    }

    fn keys<T: Table>(&mut self, slot: &mut T, path: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let at = name.span();
            let name = name.get_ref();
            let key = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
            let entry = Entry { key: &key, at, value };
            if !slot.set(name, &entry, self) {
                self.wrong(&key, &entry.at, unknown::<T>(name, value.get_ref()));
            }
        }
    }

    fn set_by(&mut self, entry: &Entry<'_, '_>) {
        if !self.in_list {
            self.origins.0.insert(entry.key.to_owned(), self.location(entry.at.start));
        }
    }

    fn wrong(&mut self, key: &str, at: &Range<usize>, message: String) {
        let at = self.location(at.start);
        self.problems.push(Problem::of_key(key, &at, message));
    }

    fn location(&self, offset: usize) -> Location {
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines[line - 1];
        let column = 1 + self.text.get(start..offset).map_or(0, |before| before.chars().count());
        Location { file: Arc::clone(self.file), line, column }
    }

    /// All problems, those of the TOML itself included. A line has problems of one kind: if it is no TOML, it can seem
    /// to say what it does not; but for a word without quotes, what its key expects says more.
    fn with_syntax(mut self, errors: &[toml::de::Error]) -> Vec<Problem> {
        let line = |problem: &Problem| problem.position.map_or(0, |(line, _)| line);
        let expected: BTreeSet<usize> = self.problems.iter().map(line).collect();
        let mut syntax = BTreeMap::new();
        for error in errors {
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
                _ => format!("this is no TOML: {}", error.message()),
            };
            // What comes after the first one in a line is often its consequence.
            syntax.entry(at.line).or_insert_with(|| Problem::at(&at, message));
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
    let remedy = match nearest(name, names.iter().map(String::as_str)) {
        Some(nearest) => proposal(Some(nearest)),
        None => format!(": there are {}", names.join(", ")),
    };
    format!("there is no such key{remedy}")
}
