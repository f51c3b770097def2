//! Where the daemon's files are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gleaner_config::Places;
use gleaner_engine::StateDir;

/// Ending of a workload's journal.
const ENDING: &str = ".journal";

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
        self.state.journals().join(format!("{workload}{ENDING}"))
    }

    /// The workloads that have a journal, in alphabetical order.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn journals(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.state.journals()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(ENDING).map(str::to_owned);
        let mut names: Vec<_> = entries.flatten().filter_map(name).collect();
        names.sort();
        Ok(names)
    }
}

/// The files of the configuration: those of `dir` alone if it is given.
pub(crate) fn config(dir: Option<PathBuf>) -> Places {
    dir.map_or_else(|| Places::system(Path::new("/")), Places::named)
}
