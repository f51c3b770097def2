//! From files to a configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::check::check;
use crate::config::Config;
use crate::places::{self, Places};
use crate::problem::{ConfigError, Problem, Severity};
use crate::reader::{self, Origins};

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
                Ok(text) => {
                    let file: Arc<Path> = path.as_path().into();
                    problems.extend(reader::read(&file, &text, &mut loaded.config, &mut loaded.origins));
                    loaded.files.push(path);
                }
                Err(problem) => problems.push(problem),
            }
        }
        check(&loaded.config, &loaded.origins, &mut problems);
        if problems.iter().any(|problem| problem.severity == Severity::Error) {
            return Err(ConfigError { problems });
        }
        loaded.warnings = problems;
        Ok(loaded)
    }
}
