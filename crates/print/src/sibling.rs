//! The other programs of Gleaner: they are installed in one directory.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
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

/// The program `name` beside this one, or in the `sbin` beside its directory, where packages have daemons.
///
/// # Errors
/// There is none.
pub fn sibling(name: &str) -> Result<PathBuf, SiblingError> {
    let path = std::env::current_exe().map_err(SiblingError::This)?.with_file_name(name);
    let in_sbin = path.ancestors().nth(2).map(|prefix| prefix.join("sbin").join(name));
    let found = [Some(path.clone()), in_sbin].into_iter().flatten().find(|path| path.exists());
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
