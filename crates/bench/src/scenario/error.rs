//! What is wrong with a scenario: the file, the line, the nearest name that exists.

use std::io;
use std::path::PathBuf;

/// How alike two names must be for one to be proposed for the other, 0..=1.
const ALIKE: f64 = 0.5;

/// A scenario that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file system refused.
    #[error("cannot read the scenario {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is neither a file nor a built-in scenario of this name.
    #[error(
        "there is no file and no built-in scenario `{name}`{}; `gleaner bench list` names them",
        proposal(nearest.as_deref())
    )]
    NoSuch {
        /// What was asked for.
        name: String,
        /// The built-in scenario with the most similar name.
        nearest: Option<String>,
    },
    /// Not TOML, or a key that does not exist or has a value of the wrong type.
    #[error("{file}:{line}: {message}")]
    Syntax {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A name that does not exist.
    #[error("{file}:{line}: {message}")]
    Unknown {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// Which name, the nearest one, and those that exist.
        message: String,
    },
    /// A value that is out of range, or that contradicts another one.
    #[error("{file}:{line}: {message}")]
    Invalid {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

/// A file's name and text, to tell the line of a place in it.
pub(super) struct Text<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl Text<'_> {
    /// The line of the byte `offset`, from 1.
    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().iter().take(offset);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    pub(super) fn syntax(&self, error: &toml::de::Error) -> ScenarioError {
        let line = self.line(error.span().map_or(0, |span| span.start));
        let message = error.message().to_owned();
        ScenarioError::Syntax { file: self.name.to_owned(), line, message: with_nearest(message) }
    }

    pub(super) fn unknown(&self, offset: usize, message: String) -> ScenarioError {
        ScenarioError::Unknown { file: self.name.to_owned(), line: self.line(offset), message }
    }

    pub(super) fn invalid(&self, offset: usize, message: &str) -> ScenarioError {
        let (file, line) = (self.name.to_owned(), self.line(offset));
        ScenarioError::Invalid { file, line, message: message.to_owned() }
    }
}

/// The name among `known` that is most like `name`, if one is like it at all.
pub fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    let alike = known.map(|known| (strsim::normalized_damerau_levenshtein(name, known), known));
    let best = alike.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(alike, _)| *alike >= ALIKE).map(|(_, known)| known.to_owned())
}

/// The sentence for a name that does not exist.
pub(super) fn unknown<'k>(what: &str, name: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    let proposal = proposal(nearest(name, known.clone()).as_deref());
    let known: Vec<&str> = known.collect();
    format!("unknown {what} `{name}`{proposal} (there are: {})", known.join(", "))
}

fn proposal(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
}

/// Serde says ``unknown field `a`, expected one of `b`, `c` ``: the nearest of those is put before them.
fn with_nearest(message: String) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if !message.starts_with("unknown field") {
        return message;
    }
    let Some(name) = quoted.next() else { return message };
    match nearest(name, quoted) {
        Some(nearest) => message.replacen(", expected", &format!("; did you mean `{nearest}`? Expected"), 1),
        None => message,
    }
}
