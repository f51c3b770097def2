//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The longest message, in characters; only what repeats a monstrous value is longer.
const MAX_LENGTH: usize = 4000;

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Location {
    /// As it was opened.
    #[serde(serialize_with = "lossy")]
    pub file: Arc<Path>,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    #[serde(skip)]
    pub column: usize,
}

/// As text, whatever its bytes are.
fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    path.to_string_lossy().serialize(serializer)
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// Whether a problem keeps the configuration from being used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// It cannot be used.
    Error,
    /// It can be used, and something in it is probably not what was meant.
    Warning,
}

/// One thing that is wrong. Displayed it is whole: file, line and column, the key, what is wrong, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The file or directory.
    pub file: PathBuf,
    /// Line and column, both from 1; `None` concerns all of it.
    pub position: Option<(usize, usize)>,
    /// The key, with the tables that it is in, such as `metrics.listen`; `None` concerns none in particular.
    pub key: Option<String>,
    /// What is wrong, and the remedy.
    pub message: String,
}

impl Problem {
    pub(crate) fn of_file(file: &Path, message: &str) -> Self {
        Self {
            severity: Severity::Error,
            file: file.to_owned(),
            position: None,
            key: None,
            message: line(message),
        }
    }

    pub(crate) fn at(at: &Location, message: &str) -> Self {
        Self { position: Some((at.line, at.column)), ..Self::of_file(&at.file, message) }
    }

    pub(crate) fn of_key(key: &str, at: &Location, message: &str) -> Self {
        Self { key: Some(line(key)), ..Self::at(at, message) }
    }

    pub(crate) fn warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }
}

/// What a file says, as one line that no terminal obeys and everybody can read.
fn line(text: &str) -> String {
    text.chars()
        .take(MAX_LENGTH)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some((line, column)) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        let severity = if self.severity == Severity::Warning { " warning:" } else { "" };
        let key = self.key.as_ref().map_or_else(String::new, |key| format!(" {key}:"));
        write!(f, "{severity}{key} {}", self.message)
    }
}

/// Why there is no configuration: every problem of every file, warnings too, in the order in which files are read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// At least one of them is an error.
    pub problems: Vec<Problem>,
}
