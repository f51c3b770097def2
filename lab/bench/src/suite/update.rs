//! Combines several runs: measuring all rows of a page takes hours.

use super::part::Part;
use super::report::Report;
use crate::mode::Mode;
use crate::servers::{ROWS, Result, ServersError};

impl Report {
    /// Checks that rows measured in `modes` can stand in one table with these.
    ///
    /// # Errors
    /// [`ServersError::Differs`] if these were measured in other modes.
    pub fn fits(&self, modes: &[Mode]) -> Result<()> {
        let names: Vec<String> = modes.iter().map(Mode::to_string).collect();
        let same = self.rows.iter().all(|row| row.modes.iter().map(|mode| &mode.name).eq(&names));
        if same { Ok(()) } else { Err(ServersError::Differs { date: self.environment.date.clone() }) }
    }

    /// Adopts the rows of `earlier` that were not measured now.
    pub fn keep_rows_of(&mut self, earlier: Self) {
        let new: Vec<String> = self.rows.iter().map(|row| row.name.clone()).collect();
        let is_kept = |name: &String| !new.contains(name);
        self.earlier = earlier.parts();
        for part in &mut self.earlier {
            part.rows.retain(is_kept);
        }
        self.earlier.retain(|part| !part.rows.is_empty());
        self.rows.extend(earlier.rows.into_iter().filter(|row| is_kept(&row.name)));
        self.failures.extend(earlier.failures.into_iter().filter(|failure| is_kept(&failure.row)));
        self.rows.sort_by_key(|row| ROWS.iter().position(|known| known.name == row.name));
        self.interrupted |= earlier.interrupted;
    }

    /// The runs that the rows are from, the latest first.
    pub fn parts(&self) -> Vec<Part> {
        let is_earlier = |name: &String| self.earlier.iter().any(|part| part.rows.contains(name));
        let names = self.rows.iter().map(|row| row.name.clone());
        let latest = Part {
            repeat_with: self.repeat_with.clone(),
            environment: self.environment.clone(),
            steal: self.steal,
            rows: names.filter(|name| !is_earlier(name)).collect(),
        };
        [latest].into_iter().chain(self.earlier.iter().cloned()).collect()
    }
}
