//! What is wrong with a scenario, and where.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// A scenario that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read the scenario {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
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
        source: crate::spec::SpecError,
    },
    /// The policy cannot govern the VM.
    #[error("the policy cannot govern VM `{vm}`: {message}")]
    Policy {
        /// The VM.
        vm: String,
        /// Why, and what to do.
        message: String,
    },
}

/// A scenario's text, for the lines of what is wrong in it.
pub(super) struct Text<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl Text<'_> {
    pub(super) fn wrong(&self, at: &Range<usize>, message: impl Into<String>) -> ScenarioError {
        let line = 1 + self.text.bytes().take(at.start).filter(|b| *b == b'\n').count();
        ScenarioError::At { file: self.name.to_owned(), line, message: message.into() }
    }

    /// What the parser found, with the key that may have been meant.
    pub(super) fn syntax(&self, error: &toml::de::Error) -> ScenarioError {
        let message = error.message();
        let mut names = message.split('`').skip(1).step_by(2);
        let meant = match names.next() {
            Some(name) if message.starts_with("unknown field") => hint(name, names),
            _ => String::new(),
        };
        self.wrong(&error.span().unwrap_or(0..0), format!("{message}{meant}"))
    }
}

/// "Did you mean …?", if one of `known` is much like `name`.
pub(super) fn hint<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    let likeness = |k: &&str| strsim::jaro_winkler(name, k);
    known
        .filter(|k| likeness(k) > 0.75)
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .map_or_else(String::new, |k| format!("; did you mean `{k}`?"))
}
