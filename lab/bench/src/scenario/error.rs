//! Errors in scenarios, with file, line and the nearest existing name.

use std::io;
use std::path::PathBuf;

use gleaner_proto::source_text::{SourceText, proposal, with_nearest};

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
    /// Neither a file nor a built-in scenario has this name.
    #[error(
        "there is no file and no built-in scenario `{name}`{}; `gleaner bench list` names them",
        proposal(nearest.as_deref())
    )]
    NoSuch {
        /// The given name.
        name: String,
        /// The built-in scenario with the most similar name.
        nearest: Option<String>,
    },
    /// Not TOML, or a key that does not exist or has a value of the wrong type.
    #[error("{file}:{line}: {message}")]
    Syntax {
        /// Name of the file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A name that does not exist.
    #[error("{file}:{line}: {message}")]
    Unknown {
        /// Name of the file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The name, the nearest one, and those that exist.
        message: String,
    },
    /// A value that is out of range, or that contradicts another one.
    #[error("{file}:{line}: {message}")]
    Invalid {
        /// Name of the file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

/// Creates errors at a location.
pub(super) trait At {
    fn syntax(&self, error: &toml::de::Error) -> ScenarioError;
    fn unknown(&self, offset: usize, message: String) -> ScenarioError;
    fn invalid(&self, offset: usize, message: &str) -> ScenarioError;
}

impl At for SourceText<'_> {
    fn syntax(&self, error: &toml::de::Error) -> ScenarioError {
        let line = self.line(error.span().map_or(0, |span| span.start));
        ScenarioError::Syntax { file: self.name.to_owned(), line, message: with_nearest(error.message()) }
    }

    fn unknown(&self, offset: usize, message: String) -> ScenarioError {
        ScenarioError::Unknown { file: self.name.to_owned(), line: self.line(offset), message }
    }

    fn invalid(&self, offset: usize, message: &str) -> ScenarioError {
        let (file, line) = (self.name.to_owned(), self.line(offset));
        ScenarioError::Invalid { file, line, message: message.to_owned() }
    }
}
