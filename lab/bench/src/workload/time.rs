//! A parameter that is a time, in files.

use std::time::Duration;

use gleaner_print::times::{format_time, parse_time};
use serde::{Deserialize as _, Deserializer, Serializer};

#[allow(clippy::ref_option, reason = "serde hands over a reference to the field")]
pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_str(&format_time(*time)),
        None => serializer.serialize_none(),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_time(&text).map(Some).map_err(serde::de::Error::custom)
}
