//! Combines several runs: measuring all rows of a page takes hours.

use gleaner_proto::result::{BenchResult, Ending, Part};

use crate::mode::Mode;
use crate::servers::{ROWS, ServersError};

/// Checks that rows measured in `modes` can stand in one table with those of `result`.
///
/// # Errors
/// [`ServersError::Differs`] if these were measured in other modes.
pub fn fits(result: &BenchResult, modes: &[Mode]) -> Result<(), ServersError> {
    let same = result.rows.iter().all(|row| {
        let measured = row.cells.iter().map(|cell| cell.mode.as_str());
        measured.eq(modes.iter().map(Mode::name))
    });
    if same { Ok(()) } else { Err(ServersError::Differs { date: result.environment.date.clone() }) }
}

/// Adopts the rows of `earlier` that `result` does not have.
pub fn keep_rows_of(result: &mut BenchResult, earlier: BenchResult) {
    let new: Vec<String> = result.rows.iter().map(|row| row.name.clone()).collect();
    let is_kept = |name: &str| !new.iter().any(|new| new == name);
    result.earlier = parts(&earlier);
    for part in &mut result.earlier {
        part.rows.retain(|name| is_kept(name));
    }
    result.earlier.retain(|part| !part.rows.is_empty());
    result.rows.extend(earlier.rows.into_iter().filter(|row| is_kept(&row.name)));
    result.failures.extend(earlier.failures.into_iter().filter(|failure| is_kept(&failure.row)));
    let of_kept_rows = earlier.warnings.into_iter().filter(|warning| warning.row().is_some_and(is_kept));
    result.warnings.extend(of_kept_rows);
    result.rows.sort_by_key(|row| ROWS.iter().position(|known| known.name == row.name));
    if result.ending == Ending::Complete {
        result.ending = earlier.ending;
    }
}

/// The runs that the rows are from, the latest first.
pub(super) fn parts(result: &BenchResult) -> Vec<Part> {
    let is_earlier = |name: &String| result.earlier.iter().any(|part| part.rows.contains(name));
    let names = result.rows.iter().map(|row| row.name.clone());
    let latest = Part {
        repeat_with: result.repeat_with.clone(),
        environment: result.environment.clone(),
        rows: names.filter(|name| !is_earlier(name)).collect(),
    };
    [latest].into_iter().chain(result.earlier.iter().cloned()).collect()
}
