//! Scenarios: a machine, its VMs, their programs and policies, as a TOML file.

mod error;
mod file;
mod run;
#[cfg(test)]
mod tests;
mod units;

pub use error::ScenarioError;
pub use run::Outcome;

use std::path::Path;

use gleaner_policy::Fixed;

use crate::spec::Spec;

/// Who decides what idle vCPUs do and which are active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The policy of `gleaner run`.
    Gleaner,
    /// One setting, from the beginning to the end.
    Fixed(Fixed),
}

/// A scenario that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// What it is.
    pub title: String,
    /// Where it is from.
    pub source: Option<String>,
    /// The machine.
    pub spec: Spec,
    /// By VM.
    pub control: Vec<Control>,
}

impl Scenario {
    /// Reads the scenario in the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or something is wrong with it: file, line, and the nearest name where one is unknown.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// The scenario in `text`, called `name` in errors.
    ///
    /// # Errors
    /// Something is wrong with it.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        file::parse(&error::Text { name, text })
    }
}
