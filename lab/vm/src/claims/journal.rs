//! Reads Gleaner's journal of the latest run in a guest under [`Mode::JOURNALLED`](super::measure::Mode::JOURNALLED).

use gleaner_proto::journal::{self, Record, Summary};

use crate::error::{Error, Result};
use crate::vm::Guest;

/// Path in the guest.
pub(super) const PATH: &str = "/tmp/journal";

/// All records.
pub(super) fn records(guest: &Guest) -> Result<Vec<Record>> {
    let local = tempfile::NamedTempFile::new().map_err(Error::system("make a temporary file"))?;
    std::fs::write(local.path(), guest.read(PATH)?).map_err(Error::file("write", local.path()))?;
    journal::read(local.path()).map_err(|error| malformed(error.to_string()))
}

/// The summary in the last record.
pub(super) fn summary(records: &[Record]) -> Result<Summary> {
    let end = records.iter().find_map(|record| match record {
        Record::End { summary, .. } => Some(summary.clone()),
        _ => None,
    });
    end.ok_or_else(|| malformed("it has no end".to_owned()))
}

/// Number of vCPUs in the setting that was in effect longest.
pub(super) fn longest_active(summary: &Summary) -> f64 {
    let longest = summary.settings.iter().max_by_key(|setting| setting.time);
    longest.map_or(0.0, |longest| longest.setting.active.len() as f64)
}

fn malformed(what: String) -> Error {
    Error::Protocol { who: "Gleaner's journal".to_owned(), what }
}
