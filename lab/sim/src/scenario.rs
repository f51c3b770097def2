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

use gleaner_policy::{Fixed, Method, Mode};
use gleaner_proto::source_text::SourceText;

use crate::ids::Ns;
use crate::spec::Spec;
use crate::tuning::Tuning;

/// What decides how vCPUs idle and which are active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The policy of `gleaner run`, with the method by which it retains vCPUs.
    Gleaner(Method),
    /// That of `gleaner run --strategy paper`.
    Paper,
    /// One setting for the whole run.
    Fixed(Fixed),
}

impl Control {
    /// The untouched system: idle vCPUs halt, and all are active.
    pub const HALT: Self = Self::Fixed(Fixed::UNTOUCHED);

    /// The policy of `gleaner run`, with the method that calibration would choose: the one with the cheapest wake-up.
    pub const GLEANER: Self = Self::Gleaner(Method::Haltpoll);

    /// How the policy decides; `None` without a policy.
    pub fn mode(self) -> Option<Mode> {
        match self {
            Self::Gleaner(_) => Some(Mode::Adaptive),
            Self::Paper => Some(Mode::Paper),
            Self::Fixed(_) => None,
        }
    }
}

impl FromStr for Control {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "gleaner" => Ok(Self::GLEANER),
            "paper" => Ok(Self::Paper),
            other => match other.strip_prefix("gleaner:") {
                Some(method) => method.parse().map(Self::Gleaner),
                None => other.parse().map(Self::Fixed),
            },
        }
    }
}

/// A scenario that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// One-line description.
    pub title: String,
    /// The paper and figure that it reproduces, if any.
    pub source: Option<String>,
    /// The machine, its VMs and their programs.
    pub spec: Spec,
    /// What controls each VM, in the order of the VMs.
    pub control: Vec<Control>,
    /// Policy parameters that replace the defaults, for all controlled VMs.
    pub tuning: Tuning,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// The file cannot be read or is invalid; errors name file, line and the nearest valid name.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Parses `text`; `name` is for error messages.
    ///
    /// # Errors
    /// The scenario is invalid.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        Self::parse_with(name, text, &[])
    }

    /// The same with other grains of some of the library's programs, where the file states none.
    pub(crate) fn parse_with(name: &str, text: &str, grains: &[(&str, Ns)]) -> Result<Self, ScenarioError> {
        file::parse(&SourceText { name, text }, grains)
    }
}
