//! What can go wrong, with the thing and the remedy.

use std::path::PathBuf;
use std::time::Duration;

/// Why the lab could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read, written, made or moved.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// What was tried: a verb.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        r#source: std::io::Error,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        r#source: std::io::Error,
    },
    /// A program that the lab needs is not installed.
    #[error("`{program}` is not installed; `scripts/setup lab` installs what the lab needs")]
    NoTool {
        /// The program.
        program: String,
    },
    /// A program that the lab uses has failed.
    #[error("`{command}` failed ({status}): {stderr}")]
    Tool {
        /// The command line.
        command: String,
        /// Its exit status.
        status: String,
        /// The end of what it said.
        stderr: String,
    },
    /// The packages' lists or files could not be fetched.
    #[error(
        "cannot fetch Debian's packages of {suite} from {mirror}: {detail}\nAn image that is not in the cache \
         needs the network once; `GLEANER_LAB_MIRROR` names another mirror, `GLEANER_LAB_CACHE` another cache"
    )]
    NoPackages {
        /// The release.
        suite: String,
        /// The archive.
        mirror: String,
        /// The package manager's words.
        detail: String,
    },
    /// The machine's own package sources name no Debian archive.
    #[error(
        "the package sources of this machine name no archive of Debian's own packages: run `apt-get update`, or \
         give the archive's address in `GLEANER_LAB_MIRROR`"
    )]
    NoMirror,
    /// The packages are not what the image's recipe expects.
    #[error("Debian's packages have changed: {0}")]
    Packages(String),
    /// Too little room for an image.
    #[error(
        "{path} has {free_mib} MiB free; building images needs {needed_mib}: make room, or name another place in \
         `GLEANER_LAB_CACHE`"
    )]
    NoRoom {
        /// The cache.
        path: PathBuf,
        /// What is there.
        free_mib: u64,
        /// What is wanted.
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
    /// The machine's description contradicts itself.
    #[error("no such machine: {0}")]
    Spec(String),
    /// The guest's kernel panicked.
    #[error("the kernel of VM `{vm}` panicked; its last lines:\n{console}")]
    Panic {
        /// The machine's name.
        vm: String,
        /// The end of its console, from the panic on.
        console: String,
    },
    /// QEMU ended although nobody asked it to.
    #[error("VM `{vm}` ended: {how}; the end of its console:\n{console}")]
    Ended {
        /// The machine's name.
        vm: String,
        /// QEMU's exit status and words.
        how: String,
        /// The end of its console.
        console: String,
    },
    /// The guest did not answer in time. It has been killed.
    #[error("VM `{vm}` did not {what} within {after:?} and was killed; the end of its console:\n{console}")]
    Hung {
        /// The machine's name.
        vm: String,
        /// What it was to do.
        what: String,
        /// How long it had.
        after: Duration,
        /// The end of its console.
        console: String,
    },
    /// The agent in the guest could not do what it was asked for.
    #[error("in VM `{vm}`: {error}")]
    Guest {
        /// The machine's name.
        vm: String,
        /// The agent's words.
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
    /// Something spoke another language than expected.
    #[error("{who} said something that was not understood: {what}")]
    Protocol {
        /// The speaker.
        who: String,
        /// What was wrong with it.
        what: String,
    },
}

/// What the lab's functions return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A function that makes a file's error from an I/O error: `map_err(Error::file("read", path))`.
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File { what, path: path.into(), source }
    }

    /// The same for system calls.
    pub(crate) fn system<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what: what.into(), source: source.into() }
    }
}
