//! From files to a configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::check::check;
use crate::config::Config;
use crate::origins::Origins;
use crate::places::{self, Places};
use crate::problem::{ConfigError, Problem, Severity};
use crate::reader;

/// A configuration, and where it comes from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loaded {
    /// What holds.
    pub config: Config,
    /// The files that were read, the one with the last word last; empty ones, which disable others, are not among
    /// them.
    pub files: Vec<PathBuf>,
    /// Which of them set which value. Elements of lists know it themselves.
    pub origins: Origins,
    /// What is probably not what was meant.
    pub warnings: Vec<Problem>,
}

impl Config {
    /// Reads the configuration.
    ///
    /// # Errors
    /// All problems of all files, if one of them is more than a warning.
    pub fn load(places: &Places) -> Result<Loaded, ConfigError> {
        let mut problems = Vec::new();
        let mut loaded = Loaded::default();
        for path in places.files(&mut problems) {
            match places::read(&path) {
                Ok(text) if text.is_empty() => {}
                Ok(text) => loaded.add(path, &text, &mut problems),
                Err(problem) => problems.push(problem),
            }
        }
        loaded.finish(problems)
    }

    /// Reads a text as the only file.
    ///
    /// # Errors
    /// All its problems, if one of them is more than a warning.
    pub fn parse(file: &Path, text: &str) -> Result<Loaded, ConfigError> {
        let mut problems = Vec::new();
        let mut loaded = Loaded::default();
        loaded.add(file.to_owned(), text, &mut problems);
        loaded.finish(problems)
    }
}

impl Loaded {
    fn add(&mut self, path: PathBuf, text: &str, problems: &mut Vec<Problem>) {
        let file: Arc<Path> = path.as_path().into();
        problems.extend(reader::read(&file, text, &mut self.config, &mut self.origins));
        self.files.push(path);
    }

    fn finish(mut self, mut problems: Vec<Problem>) -> Result<Self, ConfigError> {
        check(&self.config, &self.origins, &mut problems);
        if problems.iter().any(|problem| problem.severity == Severity::Error) {
            return Err(ConfigError { problems });
        }
        self.warnings = problems;
        Ok(self)
    }
}
