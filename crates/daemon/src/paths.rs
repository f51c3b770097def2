//! Where the daemon's files are.

use std::path::{Path, PathBuf};

use gleaner_config::Places;
use gleaner_engine::StateDir;

/// Where the daemon's files are.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub(crate) config: Places,
    pub(crate) state: StateDir,
    pub(crate) socket: PathBuf,
}

impl Paths {
    /// The journal of a workload.
    pub(crate) fn journal(&self, workload: &str) -> PathBuf {
        self.state.journal_of(workload)
    }
}

/// The files of the configuration: those of `dir` alone if it is given.
pub(crate) fn config(dir: Option<PathBuf>) -> Places {
    dir.map_or_else(|| Places::system(Path::new("/")), Places::named)
}
