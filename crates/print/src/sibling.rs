//! The other programs of Gleaner: they are installed in one directory, or in `bin` and `sbin` beside each other.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of Gleaner that this one needs cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SiblingError {
    /// The kernel does not say where this program is.
    #[error("cannot find this program: {0}")]
    This(io::Error),
    /// There is none.
    #[error("this needs {name} beside it, at {}: `make build` builds all programs, `make install` installs them", path.display())]
    Missing {
        /// Its name.
        name: String,
        /// Where it was expected.
        path: PathBuf,
    },
    /// It is there and cannot be started.
    #[error("cannot run {}: {cause}", path.display())]
    Failed {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
}

/// The program `name` beside this one, or in the `bin` or `sbin` beside its directory: packages have daemons and
/// `gleaner-host` in `sbin`.
///
/// # Errors
/// There is none.
pub fn sibling(name: &str) -> Result<PathBuf, SiblingError> {
    beside(&std::env::current_exe().map_err(SiblingError::This)?, name)
}

fn beside(this: &Path, name: &str) -> Result<PathBuf, SiblingError> {
    let path = this.with_file_name(name);
    let prefix = path.ancestors().nth(2);
    let elsewhere =
        prefix.into_iter().flat_map(|prefix| ["bin", "sbin"].map(|dir| prefix.join(dir).join(name)));
    let found = std::iter::once(path.clone()).chain(elsewhere).find(|path| path.exists());
    found.ok_or_else(|| SiblingError::Missing { name: name.to_owned(), path })
}

/// Becomes the program `name` beside this one. Returns only where that fails.
pub fn become_sibling(name: &str, arguments: impl IntoIterator<Item = OsString>) -> SiblingError {
    match sibling(name) {
        Ok(path) => {
            let cause = Command::new(&path).args(arguments).exec();
            SiblingError::Failed { path, cause }
        }
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn programs_in_bin_and_sbin_find_each_other() {
        let prefix = tempfile::tempdir().unwrap();
        let place = |dir: &str, name: &str| {
            let dir = prefix.path().join(dir);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(name), "").unwrap();
            dir.join(name)
        };
        let (bench, host) = (place("bin", "gleaner-bench"), place("sbin", "gleaner-host"));
        assert_eq!(beside(&host, "gleaner-bench").unwrap(), bench);
        assert_eq!(beside(&bench, "gleaner-host").unwrap(), host);
        let own = place("sbin", "gleaner-bench");
        assert_eq!(beside(&host, "gleaner-bench").unwrap(), own, "the one beside it comes first");
        let error = beside(&host, "gleaner-sim").unwrap_err().to_string();
        assert!(error.contains("needs gleaner-sim") && error.contains("make build"), "{error}");
    }
}
