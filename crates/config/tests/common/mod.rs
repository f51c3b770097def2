//! A system's files, in a directory of their own.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part; a test may panic")]

use std::fs;
use std::path::PathBuf;

use gleaner_config::{Config, ConfigError, Loaded, Places};

/// The administrator's file.
pub(crate) const MAIN: &str = "etc/gleaner/gleaner.toml";

/// A root directory.
pub(crate) struct Tree(tempfile::TempDir);

impl Tree {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A tree with one file.
    pub(crate) fn with(text: &str) -> Self {
        let tree = Self::new();
        tree.write(MAIN, text);
        tree
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn load(&self) -> Result<Loaded, ConfigError> {
        Config::load(&Places::system(self.0.path()))
    }

    /// A text without the directory's own name.
    pub(crate) fn hide(&self, text: &str) -> String {
        text.replace(self.0.path().to_str().unwrap(), "")
    }
}
