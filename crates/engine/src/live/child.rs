//! Starting the user's command inside its group, with its terminal and its signals as if Gleaner were not there.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use gleaner_kernel::Root;
use gleaner_kernel::cgroup::WorkloadGroup;

use super::wait::Signals;

/// The user's command, running.
pub type Child = std::process::Child;

/// Why a command does not run.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such program.
    #[error("{command}: command not found")]
    NotFound {
        /// The program's name.
        command: String,
    },
    /// The program cannot be executed.
    #[error("{command}: {source}")]
    NotExecutable {
        /// The program's name.
        command: String,
        /// What the kernel answered.
        r#source: io::Error,
    },
}

impl SpawnError {
    /// Why `program` could not be started.
    pub fn new(program: &OsStr, source: io::Error) -> Self {
        let command = program.to_string_lossy().into_owned();
        if source.kind() == io::ErrorKind::NotFound {
            Self::NotFound { command }
        } else {
            Self::NotExecutable { command, source }
        }
    }

    /// The exit status for it, as `env` has it: 127 and 126.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
        }
    }
}

/// Starts `command` (program and arguments), as a member of `group` from its first instruction on.
///
/// # Errors
/// The program does not exist or cannot be executed.
pub fn spawn(
    root: &Root,
    group: Option<&WorkloadGroup>,
    signals: &Signals,
    command: &[OsString],
) -> Result<Child, SpawnError> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(SpawnError::NotFound { command: String::new() });
    };
    let mut child = Command::new(program);
    child.args(arguments);
    // A file that cannot be opened leaves the child where it is; its group then stays empty, which is seen.
    let joins: Vec<File> = group
        .map(WorkloadGroup::procs_files)
        .unwrap_or_default()
        .iter()
        .filter_map(|path| OpenOptions::new().write(true).open(root.path(path)).ok())
        .collect();
    // The blocked signals would stay blocked in the child, which could then not be stopped.
    let mask = signals.before();
    // SAFETY: between fork and exec the closure only calls write(2), on descriptors that are open in the child too,
    // and sigprocmask(2); both are async-signal-safe.
    unsafe {
        child.pre_exec(move || {
            mask.thread_set_mask()?;
            for file in &joins {
                // "0" is the writing process.
                libc::write(file.as_raw_fd(), b"0".as_ptr().cast(), 1);
            }
            Ok(())
        });
    }
    child.spawn().map_err(|error| SpawnError::new(program, error))
}
