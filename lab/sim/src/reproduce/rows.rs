//! The rows: every number and direction that the papers' text states.

use gleaner_report::reproduction::data::Statement;

use super::ReproduceError;

/// The data file, which is part of the program so that it can be installed alone.
const ROWS: &str = include_str!("../../papers/rows.csv");

/// All rows, by paper and in the order of its text.
pub(super) fn all() -> Result<Vec<Statement>, ReproduceError> {
    csv::Reader::from_reader(ROWS.as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()
        .map_err(ReproduceError::Rows)
}
