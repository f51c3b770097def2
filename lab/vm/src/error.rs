//! Errors, each with the remedy if there is one.

use std::path::PathBuf;
use std::time::Duration;

/// Why the lab failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// The operation: a verb.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        r#source: std::io::Error,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The cause.
        r#source: std::io::Error,
    },
    /// A program that the lab needs is not installed.
    #[error("`{program}` is not installed; `scripts/setup lab` installs what the lab needs")]
    NoTool {
        /// The program's name.
        program: String,
    },
    /// A program that the lab uses has failed.
    #[error("`{command}` failed ({status}): {stderr}")]
    Tool {
        /// The command line.
        command: String,
        /// Its exit status.
        status: String,
        /// The end of its stderr.
        stderr: String,
    },
    /// Package lists or files cannot be fetched.
    #[error(
        "cannot fetch Debian's packages of {suite} from {mirror}: {detail}\nAn image that is not in the cache \
         needs the network once; `GLEANER_LAB_MIRROR` names another mirror, `GLEANER_LAB_CACHE` another cache"
    )]
    NoPackages {
        /// The release.
        suite: String,
        /// The archive.
        mirror: String,
        /// The package manager's messages.
        detail: String,
    },
    /// The machine's package sources name no Debian archive.
    #[error(
        "the package sources of this machine name no archive of Debian's own packages: run `apt-get update`, or \
         give the archive's address in `GLEANER_LAB_MIRROR`"
    )]
    NoMirror,
    /// The packages are not as the image's recipe expects.
    #[error("Debian's packages have changed: {0}")]
    Packages(String),
    /// Too little free space for an image.
    #[error(
        "{path} has {free_mib} MiB free; building images needs {needed_mib}: make room, or name another place in \
         `GLEANER_LAB_CACHE`"
    )]
    NoRoom {
        /// The cache directory.
        path: PathBuf,
        /// Free space in MiB.
        free_mib: u64,
        /// Required space in MiB.
        needed_mib: u64,
    },
    /// The binaries under test are not built.
    #[error(
        "{path} does not exist: `cargo build -p gleaner` (with `--release` for a release build) makes it"
    )]
    NoBinary {
        /// Where the binary should be.
        path: PathBuf,
    },
    /// The Debian package is not of the present sources.
    #[error("{package} is older than {source_file}: `make deb` rebuilds it")]
    StalePackage {
        /// The package.
        package: PathBuf,
        /// The newest of the sources.
        source_file: PathBuf,
    },
    /// The machine's description contradicts itself.
    #[error("no such machine: {0}")]
    Spec(String),
    /// An environment variable has another value than it can have.
    #[error("{name} is `{value}`: give {wanted}, or do not set it")]
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it can be.
        wanted: &'static str,
    },
    /// The guest's kernel panicked.
    #[error("the kernel of VM `{vm}` panicked; its last lines:\n{console}")]
    Panic {
        /// The machine's name.
        vm: String,
        /// The end of its console, from the panic on.
        console: String,
    },
    /// QEMU exited unexpectedly.
    #[error("VM `{vm}` ended: {how}; the end of its console:\n{console}")]
    Ended {
        /// The machine's name.
        vm: String,
        /// QEMU's exit status and messages.
        how: String,
        /// The end of its console.
        console: String,
    },
    /// The guest did not respond in time, and was killed.
    #[error("VM `{vm}` did not {what} within {after:?} and was killed; the end of its console:\n{console}")]
    Hung {
        /// The machine's name.
        vm: String,
        /// What it should have done.
        what: String,
        /// The timeout.
        after: Duration,
        /// The end of its console.
        console: String,
    },
    /// The agent in the guest reported an error.
    #[error("in VM `{vm}`: {error}")]
    Guest {
        /// The machine's name.
        vm: String,
        /// The agent's message.
        error: String,
    },
    /// A step in the guest failed.
    #[error("in VM `{vm}`, `{step}` ended with {exit}: {output}")]
    Step {
        /// The machine's name.
        vm: String,
        /// The command.
        step: String,
        /// How it ended.
        exit: String,
        /// The end of its output.
        output: String,
    },
    /// Unexpected data from the other end of a connection.
    #[error("{who} said something that was not understood: {what}")]
    Protocol {
        /// The other end.
        who: String,
        /// What was unexpected.
        what: String,
    },
}

/// Result of the lab's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A function that turns an I/O error into a file's error: `map_err(Error::file("read", path))`.
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File { what, path: path.into(), source }
    }

    /// The same for system calls.
    pub(crate) fn system<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what: what.into(), source: source.into() }
    }
}
