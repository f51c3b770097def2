//! Locates the values of keys in a scenario's text.

use std::ops::Range;

use gleaner_proto::source_text::{SourceText, nearest, proposal};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Axis, Case, Edits, Value, values_in};
use crate::scenario::{At as _, ScenarioError};

/// A parsed scenario that retains the text ranges of its values.
pub(super) struct Tree<'a> {
    text: &'a SourceText<'a>,
    root: Spanned<DeTable<'a>>,
}

impl<'a> Tree<'a> {
    pub(super) fn parse(text: &'a SourceText<'a>) -> Result<Self, ScenarioError> {
        let root = DeTable::parse(text.text).map_err(|e| text.syntax(&e))?;
        Ok(Self { text, root })
    }

    /// The axes in the table `[sweep]`, in file order.
    pub(super) fn axes(&self) -> Result<Vec<Axis>, ScenarioError> {
        let mut found = Vec::new();
        if let Some(sweep) = self.root.get_ref().get("sweep").and_then(|s| s.get_ref().as_table()) {
            self.collect("", sweep, &mut found)?;
        }
        found.sort_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, axis)| axis).collect())
    }

    fn collect(
        &self,
        at: &str,
        table: &DeTable,
        found: &mut Vec<(usize, Axis)>,
    ) -> Result<(), ScenarioError> {
        for (name, value) in table {
            let key =
                if at.is_empty() { name.get_ref().to_string() } else { format!("{at}.{}", name.get_ref()) };
            let wrong = |message: String| self.text.wrong(&value.span(), message);
            let values = match value.get_ref() {
                DeValue::Table(inner) => {
                    self.collect(&key, inner, found)?;
                    continue;
                }
                DeValue::Array(list) if list.iter().any(|v| v.get_ref().is_table()) => {
                    found.push((name.span().start, self.cases(key, list)?));
                    continue;
                }
                DeValue::Array(list) => list.iter().map(|v| scalar(v.get_ref())).collect::<Option<Vec<_>>>(),
                DeValue::String(text) => Some(values_in(text).map_err(wrong)?),
                single => scalar(single).map(|value| vec![value]),
            };
            let values = values.filter(|v| !v.is_empty()).ok_or_else(|| {
                self.text.wrong(&value.span(), format!("`{key}` needs a list of values, such as [4, 8, 16]"))
            })?;
            found.push((name.span().start, Axis { key, values, cases: Vec::new() }));
        }
        Ok(())
    }

    /// An axis whose values are tables with a name and what goes with it.
    fn cases(&self, key: String, list: &[Spanned<DeValue>]) -> Result<Axis, ScenarioError> {
        let mut axis = Axis { key, values: Vec::new(), cases: Vec::new() };
        for value in list {
            let wrong = || {
                let form = "{ name = \"…\", \"vm.a.vcpus\" = 4, … }";
                self.text.wrong(&value.span(), format!("a case of `{}` is a table such as {form}", axis.key))
            };
            let table = value.get_ref().as_table().ok_or_else(wrong)?;
            let name = name_of(value.get_ref()).ok_or_else(wrong)?;
            let mut settings = Vec::new();
            for (key, value) in table.iter().filter(|(key, _)| key.get_ref() != "name") {
                settings.push((key.get_ref().to_string(), scalar(value.get_ref()).ok_or_else(wrong)?));
            }
            axis.values.push(Value::Text(name.to_owned()));
            axis.cases.push(settings);
        }
        Ok(axis)
    }

    /// What each value of an axis changes in the text.
    pub(super) fn edits(&self, axis: &Axis) -> Result<Vec<Edits>, ScenarioError> {
        let of = |key: &str, value: &Value| -> Result<Edits, ScenarioError> {
            Ok(self.places(key)?.into_iter().map(|place| (place, value.to_string())).collect())
        };
        if axis.cases.is_empty() {
            return axis.values.iter().map(|value| of(&axis.key, value)).collect();
        }
        let of_case = |case: &Case| -> Result<Edits, ScenarioError> {
            let each = case.iter().map(|(key, value)| of(key, value));
            Ok(each.collect::<Result<Vec<_>, _>>()?.concat())
        };
        axis.cases.iter().map(of_case).collect()
    }

    /// Text ranges of the values of `key`: several if it has a `*`.
    fn places(&self, key: &str) -> Result<Vec<Range<usize>>, ScenarioError> {
        let mut parts = key.split('.');
        let first = parts.next().unwrap_or_default();
        let mut values = vec![self.child(key, self.root.get_ref(), first)?];
        for part in parts {
            let mut next = Vec::new();
            for value in values {
                match value.get_ref() {
                    DeValue::Table(table) => next.push(self.child(key, table, part)?),
                    DeValue::Array(list) if part == "*" => next.extend(list.iter()),
                    DeValue::Array(list) => {
                        let named = |v: &&Spanned<DeValue<'a>>| name_of(v.get_ref()) == Some(part);
                        let numbered = || part.parse().ok().and_then(|index: usize| list.get(index));
                        let known = list.iter().filter_map(|v| name_of(v.get_ref()));
                        let missing = || self.missing(key, part, nearest(part, known));
                        next.push(list.iter().find(named).or_else(numbered).ok_or_else(missing)?);
                    }
                    _ => return Err(self.missing(key, part, None)),
                }
            }
            values = next;
        }
        if values.is_empty() || values.iter().any(|v| v.get_ref().is_table()) {
            return Err(self.missing(key, key, None));
        }
        Ok(values.into_iter().map(Spanned::span).collect())
    }

    fn child<'t>(
        &self,
        key: &str,
        table: &'t DeTable<'a>,
        part: &str,
    ) -> Result<&'t Spanned<DeValue<'a>>, ScenarioError> {
        let known = table.keys().map(|name| name.get_ref().as_ref());
        table.get(part).ok_or_else(|| self.missing(key, part, nearest(part, known)))
    }

    fn missing(&self, key: &str, part: &str, nearest: Option<&str>) -> ScenarioError {
        let meant = proposal(nearest);
        ScenarioError::Sweep {
            file: self.text.name.to_owned(),
            message: format!(
                "the scenario has no value at `{key}` (`{part}`){meant}; write it with a value that can be replaced"
            ),
        }
    }
}

fn name_of<'v>(value: &'v DeValue) -> Option<&'v str> {
    value.as_table()?.get("name")?.get_ref().as_str()
}

fn scalar(value: &DeValue) -> Option<Value> {
    Some(match value {
        DeValue::Integer(n) => Value::Integer(i64::from_str_radix(n.as_str(), n.radix()).ok()?),
        DeValue::Float(x) => Value::Float(x.as_str().parse().ok()?),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::String(text) => Value::Text(text.to_string()),
        _ => return None,
    })
}
