//! Errors in scenario files, with their location.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use gleaner_proto::source_text::{SourceText, nearest, proposal, with_nearest};

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read the scenario {}: {source}", path.display())]
    Read {
        /// Path of the scenario.
        path: PathBuf,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// The file is invalid.
    #[error("{file}:{line}: {message}")]
    At {
        /// Path or name of the scenario.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The problem and its remedy.
        message: String,
    },
    /// The described machine cannot be built.
    #[error("{file}: {source}")]
    Spec {
        /// Path or name of the scenario.
        file: String,
        /// What is wrong with the machine.
        r#source: crate::spec::SpecError,
    },
    /// The policy cannot control the VM.
    #[error("the policy cannot govern VM `{vm}`: {message}")]
    Policy {
        /// Name of the VM.
        vm: String,
        /// The reason and the remedy.
        message: String,
    },
    /// The requested variation is impossible.
    #[error("{file}: {message}")]
    Sweep {
        /// Path or name of the scenario.
        file: String,
        /// The problem and its remedy.
        message: String,
    },
    /// One combination of a sweep cannot be run.
    #[error("with {point}: {source}")]
    Point {
        /// The values of the combination.
        point: String,
        /// Why it cannot be run.
        r#source: Box<ScenarioError>,
    },
    /// A recorded trace in it cannot be replayed.
    #[error("{file}:{line}: {source}")]
    Trace {
        /// Path or name of the scenario.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong with the trace.
        r#source: crate::recorded::RecordedError,
    },
}

/// Converts an error at a location.
pub(crate) trait At {
    fn wrong(&self, at: &Range<usize>, message: impl Into<String>) -> ScenarioError;
    /// The parser's error, with a suggestion for a misspelled key.
    fn syntax(&self, error: &toml::de::Error) -> ScenarioError;
}

impl At for SourceText<'_> {
    fn wrong(&self, at: &Range<usize>, message: impl Into<String>) -> ScenarioError {
        let line = self.line(at.start);
        ScenarioError::At { file: self.name.to_owned(), line, message: message.into() }
    }

    fn syntax(&self, error: &toml::de::Error) -> ScenarioError {
        self.wrong(&error.span().unwrap_or(0..0), with_nearest(error.message()))
    }
}

/// "Did you mean …?", if `name` resembles one of `known`.
pub(super) fn hint<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    proposal(nearest(name, known))
}
