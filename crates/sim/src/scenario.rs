//! Scenarios: a machine, its VMs, their programs and policies, as a TOML file.

mod error;
mod file;
mod program;
mod run;
#[cfg(test)]
mod tests;
mod units;

pub(crate) use error::At;
pub use error::ScenarioError;
pub use run::Outcome;

use std::path::Path;
use std::str::FromStr;

use gleaner_policy::{Fixed, Mode};
use gleaner_proto::written::Written;

use crate::spec::Spec;
use crate::tuning::Tuning;

/// Who decides what idle vCPUs do and which are active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The policy of `gleaner run`.
    Gleaner,
    /// That of `gleaner run --strategy paper`.
    Paper,
    /// One setting, from the beginning to the end.
    Fixed(Fixed),
}

impl Control {
    /// The untouched system: idle vCPUs halt, and all are active.
    pub const HALT: Self = Self::Fixed(Fixed::UNTOUCHED);

    /// How a policy decides that governs by this; none if none does.
    pub fn mode(self) -> Option<Mode> {
        match self {
            Self::Gleaner => Some(Mode::Adaptive),
            Self::Paper => Some(Mode::Paper),
            Self::Fixed(_) => None,
        }
    }
}

impl FromStr for Control {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "gleaner" => Ok(Self::Gleaner),
            "paper" => Ok(Self::Paper),
            setting => setting.parse().map(Self::Fixed),
        }
    }
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
    /// What the policy has instead of its defaults, wherever it governs.
    pub tuning: Tuning,
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
        file::parse(&Written { name, text })
    }
}
