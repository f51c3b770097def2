//! What is wrong with a scenario, and where.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use gleaner_proto::written::{Written, nearest, proposal, with_nearest};

/// A scenario that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read the scenario {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        r#source: io::Error,
    },
    /// Something in it is wrong.
    #[error("{file}:{line}: {message}")]
    At {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong there, and what would be right.
        message: String,
    },
    /// The machine that it describes cannot be built.
    #[error("{file}: {source}")]
    Spec {
        /// The file.
        file: String,
        /// What is wrong.
        r#source: crate::spec::SpecError,
    },
    /// The policy cannot govern the VM.
    #[error("the policy cannot govern VM `{vm}`: {message}")]
    Policy {
        /// The VM.
        vm: String,
        /// Why, and what to do.
        message: String,
    },
    /// It cannot be varied as it was asked for.
    #[error("{file}: {message}")]
    Sweep {
        /// The file.
        file: String,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// It cannot be run with some values.
    #[error("with {point}: {source}")]
    Point {
        /// The values.
        point: String,
        /// What is wrong then.
        r#source: Box<ScenarioError>,
    },
    /// A recorded trace in it cannot be replayed.
    #[error("{file}:{line}: {source}")]
    Trace {
        /// The scenario's file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with the trace.
        r#source: crate::recorded::RecordedError,
    },
}

/// Where something is wrong.
pub(crate) trait At {
    fn wrong(&self, at: &Range<usize>, message: impl Into<String>) -> ScenarioError;
    /// What the parser found, with the key that may have been meant.
    fn syntax(&self, error: &toml::de::Error) -> ScenarioError;
}

impl At for Written<'_> {
    fn wrong(&self, at: &Range<usize>, message: impl Into<String>) -> ScenarioError {
        let line = self.line(at.start);
        ScenarioError::At { file: self.name.to_owned(), line, message: message.into() }
    }

    fn syntax(&self, error: &toml::de::Error) -> ScenarioError {
        self.wrong(&error.span().unwrap_or(0..0), with_nearest(error.message()))
    }
}

/// "Did you mean …?", if one of `known` is much like `name`.
pub(super) fn hint<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    proposal(nearest(name, known))
}
