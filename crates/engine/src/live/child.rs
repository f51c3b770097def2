//! Starts the user's command inside its group, with its terminal and signals as if Gleaner were not there.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use gleaner_kernel::Root;
use gleaner_kernel::cgroup::WorkloadGroup;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::unistd::Pid;

use super::wait::{self, Sender, Signals};

/// The user's command, running.
pub type Child = std::process::Child;

/// Why a command does not run.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program does not exist.
    #[error("{command}: command not found")]
    NotFound {
        /// The program, as given.
        command: String,
    },
    /// The program cannot be executed.
    #[error("{command}: {source}")]
    NotExecutable {
        /// The program, as given.
        command: String,
        /// The kernel's error.
        r#source: io::Error,
    },
    /// This process has no resources to start anything, which says nothing about the program.
    #[error("cannot start {command} under control: {source}")]
    Resources {
        /// The program, as given.
        command: String,
        /// The kernel's error.
        r#source: io::Error,
    },
}

impl SpawnError {
    /// Classifies the error of starting `program`.
    pub fn new(program: &OsStr, source: io::Error) -> Self {
        let command = program.to_string_lossy().into_owned();
        let scarce = [libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::ENOMEM];
        match source.raw_os_error() {
            Some(number) if scarce.contains(&number) => Self::Resources { command, source },
            _ if source.kind() == io::ErrorKind::NotFound => Self::NotFound { command },
            _ => Self::NotExecutable { command, source },
        }
    }

    /// The exit status as in `env`: 127 and 126, or 125 if it is not the command's fault.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Resources { .. } => 125,
        }
    }
}

/// Starts `command` (program and arguments), a member of `group` from its first instruction on.
///
/// # Errors
/// The program does not exist or cannot be executed, or nothing can be started.
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
    // If a file cannot be opened, the child stays where it is and its group stays empty, which is noticed
    // later.
    let joins: Vec<File> = group
        .map(WorkloadGroup::procs_files)
        .unwrap_or_default()
        .iter()
        .filter_map(|path| OpenOptions::new().write(true).open(root.path(path)).ok())
        .collect();
    // Signals that are still blocked in the child could not stop it.
    let mask = signals.before();
    // SAFETY: between fork and exec the closure only calls write(2), on descriptors that are open in the child,
    // too, and sigprocmask(2); both are async-signal-safe.
    unsafe {
        child.pre_exec(move || {
            mask.thread_set_mask()?;
            for file in &joins {
                // "0" stands for the writing process.
                libc::write(file.as_raw_fd(), b"0".as_ptr().cast(), 1);
            }
            Ok(())
        });
    }
    child.spawn().map_err(|source| SpawnError::new(program, source))
}

/// Replaces this process by `command`, as if Gleaner had never been there; needs nothing that Gleaner lacked.
/// `mask` is the signal mask that Gleaner was started with. Returns only on failure, with the reason.
pub fn become_command(mask: &SigSet, command: &[OsString]) -> SpawnError {
    let Some((program, arguments)) = command.split_first() else {
        return SpawnError::NotFound { command: String::new() };
    };
    // Valid, since it was in force before. Pending signals are delivered here.
    let _ = mask.thread_set_mask();
    SpawnError::new(program, Command::new(program).args(arguments).exec())
}

/// Waits for the command, which only ends by itself: keeps its caller waiting and forwards signals. Needs no
/// descriptors, so that it works when everything else has failed.
///
/// # Errors
/// It was waited for already, or SIGCHLD is ignored, so that there is no status.
pub fn wait_for_exit(child: &mut Child) -> io::Result<ExitStatus> {
    // Another thread can consume SIGCHLD.
    const POLL_INTERVAL: Duration = Duration::from_secs(1);
    let mut signals = wait::handled();
    signals.add(Signal::SIGCHLD);
    // Cannot fail: the signals are valid.
    let _ = signals.thread_block();
    let pid = Pid::from_raw(child.id().cast_signed());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let Some(received) = wait::next_of(&signals, POLL_INTERVAL) else { continue };
        if received.number == libc::SIGCHLD {
            continue;
        }
        received.forward(pid);
        if received.number == libc::SIGTSTP && received.sender != Sender::OwnWrite {
            // The shell must see its job stopped. This signal cannot be blocked.
            let _ = raise(Signal::SIGSTOP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_descriptors_are_not_the_commands_fault() {
        let status = |number| {
            let error = io::Error::from_raw_os_error(number);
            SpawnError::new("x".as_ref(), error).exit_code()
        };
        assert_eq!([libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::ENOMEM].map(status), [125; 4]);
        assert_eq!([libc::ENOENT, libc::EACCES, libc::ENOEXEC].map(status), [127, 126, 126]);
    }

    #[test]
    fn the_command_is_waited_for_even_without_descriptors() {
        let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        assert_eq!(wait_for_exit(&mut child).unwrap().code(), Some(3));
    }
}
