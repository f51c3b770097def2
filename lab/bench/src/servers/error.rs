//! Why a measurement of servers, or one program in it, failed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::client::ClientError;
use crate::environment::SettingError;

/// Why a cell could not be measured, or the whole suite could not run.
#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    /// A file operation failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// The operation, e.g. `write`.
        operation: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// A system call that does not involve a file failed.
    #[error("cannot {operation}: {source}")]
    System {
        /// The failed operation.
        operation: String,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// Programs that the chosen rows need are not installed.
    #[error("not installed: {list}; apt-get install {packages}")]
    Missing {
        /// The programs, each as `program (package)`.
        list: String,
        /// The Debian packages that contain them.
        packages: String,
    },
    /// A program ended unexpectedly.
    #[error("{program} ended with {status}: {log}")]
    Ended {
        /// Name of the program.
        program: String,
        /// Exit status.
        status: String,
        /// The end of its output.
        log: String,
    },
    /// A program timed out.
    #[error("{program} did not {what} within {limit:?}: {log}")]
    TimedOut {
        /// Name of the program.
        program: String,
        /// What it should have done.
        what: &'static str,
        /// The timeout.
        limit: Duration,
        /// The end of its output.
        log: String,
    },
    /// Unexpected output or answer of a program.
    #[error("cannot understand the answer of {program}: `{answer}`")]
    Answer {
        /// Name of the program.
        program: &'static str,
        /// The part that was not understood.
        answer: String,
    },
    /// An unknown row, load or user.
    #[error("unknown {what} `{name}`; choose from: {known}")]
    Unknown {
        /// What kind of name it is.
        what: &'static str,
        /// The given name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A kernel setting has changed.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A report in other modes cannot be extended.
    #[error("the report of {date} was measured in other modes; name another file, or measure all rows anew")]
    Differs {
        /// When it was measured.
        date: String,
    },
    /// Our own client failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A kernel file could not be read.
    #[error(transparent)]
    Kernel(#[from] gleaner_kernel::KernelError),
    /// A signal ended the measurement.
    #[error("interrupted")]
    Interrupted,
}

/// Result type of this module.
pub type Result<T> = std::result::Result<T, ServersError>;

impl ServersError {
    /// For `map_err`: `operation` on `path` failed.
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { operation, path, source }
    }

    /// For `map_err`: `operation` failed with an errno.
    pub(crate) fn system<E: Into<io::Error>>(operation: impl Into<String>) -> impl FnOnce(E) -> Self {
        let operation = operation.into();
        move |source| Self::System { operation, source: source.into() }
    }
}
