//! Reads how many CPU credits a burstable instance has left.

use std::path::Path;

use gleaner_engine::live::Counter;

/// The number that `source` gives, a command or `file:PATH` as for `--progress`.
///
/// # Errors
/// Why there is no number, as a sentence.
pub(crate) fn read(source: &str) -> Result<f64, String> {
    let counter: Counter = source.parse()?;
    counter.read_once().map_err(|error| format!("{}: {error}", Path::new(source).display()))
}
