//! Real servers under different settings: the benchmark behind `docs/benchmarks.md`.
//!
//! A *row* is a server with a load ([`rows`]), a *mode* is how it is started ([`Mode`]): plainly, under `gleaner run`,
//! or under one static setting. One measurement of a row in a mode is a *cell*: a process of its own that starts
//! server and client, waits until the server is ready, lets the client warm up and then measures one window
//! ([`measure`]). [`run`] interleaves the cells and [`Report`] holds what came out.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod cell;
mod environment;
pub(crate) mod knobs;
pub(crate) mod launch;
mod machine;
mod mariadb;
mod markdown;
mod memcached;
mod mode;
mod nginx;
mod numbers;
mod own;
mod postgres;
mod programs;
mod rate;
mod redis;
mod report;
mod rows;
pub(crate) mod running;
mod suite;
mod window;

pub use cell::{CpuUse, Latency, Measured, Sample, measure, prepare, with_mariadb};
pub use environment::Environment;
pub use knobs::Knobs;
pub use mode::Mode;
pub use rate::watch;
pub use report::{LatencyMode, LatencyReport, ModeReport, Report, RowReport};
pub use rows::{Class, Placement, ROWS, Row, find, load};
pub(crate) use suite::measure_apart;
pub use suite::{Options, run};
pub use window::Window;

/// Why a cell could not be measured, or the whole suite could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// What was tried, e.g. `write`.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        r#source: io::Error,
    },
    /// A system call without a file failed.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried.
        operation: String,
        /// What the system said.
        r#source: io::Error,
    },
    /// Programs that the chosen rows need are not installed; one `program (package)` each.
    #[error("not installed: {list}; apt-get install {packages}")]
    Missing {
        /// The programs.
        list: String,
        /// The Debian packages that have them.
        packages: String,
    },
    /// A program ended although it should not have.
    #[error("{program} ended with {status}: {log}")]
    Ended {
        /// Its name.
        program: String,
        /// How it ended.
        status: String,
        /// The end of its output.
        log: String,
    },
    /// A program did not do in time what it should.
    #[error("{program} did not {what} within {limit:?}: {log}")]
    TimedOut {
        /// Its name.
        program: String,
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
        /// The end of its output.
        log: String,
    },
    /// A program printed or answered something else than expected.
    #[error("cannot understand the answer of {program}: `{answer}`")]
    Answer {
        /// Its name.
        program: &'static str,
        /// The part that was not understood.
        answer: String,
    },
    /// A choice that does not exist.
    #[error("there is no {what} `{name}`; there are: {known}")]
    Unknown {
        /// `row` or `mode`.
        what: &'static str,
        /// The name that was given.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A kernel setting is not as it was when the run began.
    #[error(
        "{path} is `{is}`, not `{was}` as when the run began; `gleaner restore` undoes what Gleaner left"
    )]
    Touched {
        /// The setting's file.
        path: String,
        /// Its value at the beginning.
        was: String,
        /// Its value now.
        is: String,
    },
    /// Our own client could not do its work.
    #[error(transparent)]
    Client(#[from] crate::client::Error),
    /// A file of the kernel could not be read.
    #[error(transparent)]
    Kernel(#[from] gleaner_kernel::KernelError),
    /// A signal ended the measurement.
    #[error("interrupted")]
    Interrupted,
}

/// The result of this module.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
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
