//! Records come from other machines: numbers that no host can have recorded are refused, so that sums of theirs hold.

use serde::de::Error as _;
use serde_json::Value;

/// Larger than a thousand vCPUs' times in a day, in ns, and small enough for sums of dozens.
const LARGEST: u64 = 1 << 57;

/// Checks each number in a JSON document.
///
/// # Errors
/// It is no JSON, or has a larger number.
pub(crate) fn check(bytes: &[u8]) -> serde_json::Result<()> {
    let document: Value = serde_json::from_slice(bytes)?;
    match too_large(&document) {
        Some(number) => {
            Err(serde_json::Error::custom(format!("{number} is more than a host can record ({LARGEST})")))
        }
        None => Ok(()),
    }
}

/// A number in `value` that is too large.
fn too_large(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().filter(|number| *number > LARGEST),
        Value::Array(items) => items.iter().find_map(too_large),
        Value::Object(fields) => fields.values().find_map(too_large),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}
