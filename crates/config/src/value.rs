//! Values of single keys: what is expected, and what is wrong with anything else.

use std::fmt;
use std::net::SocketAddr;

use gleaner_policy::Objective;
use gleaner_proto::source_text::{nearest, proposal};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use toml::de::DeValue;

use crate::hours::QuietHours;

/// Most workloads that can be engaged at once.
const MOST_WORKLOADS: u32 = 256;

/// A value as it is called in a message.
pub(crate) fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() <= 40 => format!("the text {text:?}"),
        DeValue::String(_) => "a long text".to_owned(),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date or time".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn expected(what: &str, value: &DeValue<'_>) -> String {
    format!("expected {what}, not {}", describe(value))
}

/// `true` or `false`.
pub(crate) fn boolean(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| expected("true or false", value))
}

fn text<'v>(what: &str, value: &'v DeValue<'_>) -> Result<&'v str, String> {
    value.as_str().ok_or_else(|| expected(what, value))
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// A finite number, with a fraction or without.
fn number(value: &DeValue<'_>) -> Option<f64> {
    let float = || value.as_float()?.as_str().parse().ok();
    integer(value).map(|number| number as f64).or_else(float).filter(|number| number.is_finite())
}

/// A share of the machine.
pub(crate) fn share(value: &DeValue<'_>) -> Result<f64, String> {
    let share = number(value);
    share.filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| {
        let percent = share.filter(|share| (1.0..=100.0).contains(share));
        let proposal =
            percent.map_or_else(String::new, |percent| format!("; did you mean {}?", percent / 100.0));
        expected("a number from 0 to 1 such as 0.5", value) + &proposal
    })
}

/// A number of workloads.
pub(crate) fn workloads(value: &DeValue<'_>) -> Result<u32, String> {
    let number = integer(value).and_then(|number| u32::try_from(number).ok());
    number.filter(|number| (1..=MOST_WORKLOADS).contains(number)).ok_or_else(|| {
        let remedy = match number {
            Some(0) => ": to engage none, stop gleanerd",
            _ => "",
        };
        expected(&format!("a number from 1 to {MOST_WORKLOADS}"), value) + remedy
    })
}

/// A number of CPU credits.
pub(crate) fn credits(value: &DeValue<'_>) -> Result<f64, String> {
    number(value)
        .filter(|credits| *credits >= 0.0)
        .ok_or_else(|| expected("a number of CPU credits such as 20, or 0 for no limit", value))
}

/// An objective.
pub(crate) fn objective(value: &DeValue<'_>) -> Result<Objective, String> {
    let names = || Objective::ALL.into_iter().map(Objective::name);
    let known = value.as_str().and_then(|name| name.parse().ok());
    known.ok_or_else(|| {
        let near = value.as_str().and_then(|name| nearest(name, names()));
        expected("latency, balanced or efficiency", value) + &proposal(near)
    })
}

/// Where a number can be read.
pub(crate) fn source(value: &DeValue<'_>) -> Result<Option<String>, String> {
    let what = "a command that prints a number, or file:PATH";
    match text(what, value)? {
        "" => Ok(None),
        text if text.trim().is_empty() => Err(expected(what, value)),
        text => match text.strip_prefix("file:") {
            Some(path) if !path.starts_with('/') => {
                Err(expected("a whole path after `file:`, such as file:/run/NAME", value))
            }
            _ => Ok(Some(text.to_owned())),
        },
    }
}

/// An address to listen at, or none.
pub(crate) fn listen(value: &DeValue<'_>) -> Result<Option<SocketAddr>, String> {
    let what = "an IP address and a port such as 127.0.0.1:9839 or [::1]:9839, or nothing";
    match text(what, value)? {
        "" => Ok(None),
        text => match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => Ok(Some(address)),
            _ => Err(expected(what, value)),
        },
    }
}

/// Quiet hours.
pub(crate) fn hours(value: &DeValue<'_>) -> Result<QuietHours, String> {
    text("a time such as \"Mon-Fri 22:00-06:00\"", value)?.parse()
}

/// The name of a user group.
pub(crate) fn group(value: &DeValue<'_>) -> Result<String, String> {
    let what = "the name of a user group such as gleaner";
    let is_name = |name: &str| {
        (1..=32).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    let name = text(what, value)?;
    if is_name(name) { Ok(name.to_owned()) } else { Err(expected(what, value)) }
}

/// The same value, for a key that can be missing.
pub(crate) fn some<T>(
    read: fn(&DeValue<'_>) -> Result<T, String>,
) -> impl Fn(&DeValue<'_>) -> Result<Option<T>, String> {
    move |value| read(value).map(Some)
}

/// Writes a value as its text.
pub(crate) fn as_text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Writes a value as its text, or an empty one if there is none.
#[allow(clippy::ref_option, reason = "serde passes the field")]
pub(crate) fn as_text_or_empty<T: fmt::Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => "".serialize(serializer),
    }
}

/// The schema of an objective.
pub(crate) fn objectives(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": Objective::ALL.map(Objective::name) })
}
