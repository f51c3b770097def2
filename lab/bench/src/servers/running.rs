//! A running program. Waiting through a pidfd costs nothing and can be interrupted by a signal.

use std::fs;
use std::iter;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::error::{Result, ServersError};
use super::log::tail;
use crate::runner::{arrival, interrupted};

/// Timeout for a server to start or stop. `MariaDB` takes longest, after a crash of the machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A started program. Dropping it stops it and waits for its end.
pub(crate) struct Running {
    child: Child,
    ended: OwnedFd,
    identity: Identity,
}

/// Name of a running program, where its output is, and how to end it.
pub(crate) struct Identity {
    pub(crate) program: String,
    pub(crate) log: Option<PathBuf>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) stop: Signal,
    pub(crate) group: bool,
}

impl Running {
    /// Takes over a child that has not been waited for.
    pub(crate) fn new(mut child: Child, identity: Identity) -> Result<Self> {
        match pidfd(&child) {
            Ok(ended) => Ok(Self { child, ended, identity }),
            Err(errno) => {
                // Nobody else knows of the child, so kill it here. It might already have ended.
                let _ = child.kill().and_then(|()| child.wait());
                Err(ServersError::system("open a pidfd")(errno))
            }
        }
    }

    /// Polls `ready` until it returns true.
    pub(crate) fn wait_ready(&mut self, mut ready: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while !ready() {
            if Instant::now() > deadline {
                return Err(self.timed_out("become ready", TIMEOUT));
            }
            // Returns at once if the server ends instead.
            if let Some(status) = self.wait(Duration::from_millis(5))? {
                return Err(self.ended(status));
            }
            if interrupted() {
                return Err(ServersError::Interrupted);
            }
        }
        Ok(())
    }

    /// Waits at most `limit` for its end. `None` if it is still running, or if a signal arrived.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        self.poll(limit, None)?;
        self.child.try_wait().map_err(ServersError::system(format!("wait for {}", self.identity.program)))
    }

    /// Like [`Running::wait`], but leaves the ended process in `/proc`, and returns at once if a signal has ever arrived.
    /// Returns whether the process has ended.
    pub(crate) fn wait_unreaped(&self, limit: Duration) -> Result<bool> {
        self.poll(limit, arrival())
    }

    fn poll(&self, limit: Duration, signals: Option<PollFd<'_>>) -> Result<bool> {
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let ended = PollFd::new(self.ended.as_fd(), PollFlags::POLLIN);
        let mut fds: Vec<_> = iter::once(ended).chain(signals).collect();
        match nix::poll::poll(&mut fds, timeout) {
            Ok(_) => Ok(fds[0].any().unwrap_or(false)),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(ServersError::system(format!("wait for {}", self.identity.program))(errno)),
        }
    }

    /// Waits at most `limit` for it to end successfully.
    pub(crate) fn wait_for_success(mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let status = loop {
            self.wait_unreaped(deadline.saturating_duration_since(Instant::now()))?;
            if let Some(status) = self.wait(Duration::ZERO)? {
                break status;
            }
            if interrupted() {
                return Err(ServersError::Interrupted);
            }
            if Instant::now() >= deadline {
                return Err(self.timed_out("end", limit));
            }
        };
        if status.success() { Ok(()) } else { Err(self.ended(status)) }
    }

    pub(crate) fn pid(&self) -> Pid {
        pid(&self.child)
    }

    /// The error for a program that ended by itself.
    pub(crate) fn ended(&self, status: ExitStatus) -> ServersError {
        if interrupted() {
            return ServersError::Interrupted;
        }
        ServersError::Ended {
            program: self.identity.program.clone(),
            status: status.to_string(),
            log: self.log_tail(),
        }
    }

    /// The error for a program that timed out.
    pub(crate) fn timed_out(&self, what: &'static str, limit: Duration) -> ServersError {
        ServersError::TimedOut { program: self.identity.program.clone(), what, limit, log: self.log_tail() }
    }

    /// Waits for the end of a program that has closed its output; returns the error for it.
    pub(crate) fn failed<T>(mut self, output: &str) -> Result<T> {
        let Some(status) = self.wait(TIMEOUT)? else {
            return Err(self.timed_out("end", TIMEOUT));
        };
        match self.ended(status) {
            ServersError::Ended { program, status, .. } => {
                Err(ServersError::Ended { program, status, log: tail(output) })
            }
            other => Err(other),
        }
    }

    fn log_tail(&self) -> String {
        self.identity
            .log
            .as_ref()
            .and_then(|log| fs::read(log).ok())
            .map_or_else(String::new, |bytes| tail(&String::from_utf8_lossy(&bytes)))
    }

    /// Stops it by its pid and waits for its end; kills it if it does not end in time.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if self.wait(Duration::ZERO)?.is_some() {
            return Ok(());
        }
        self.signal(self.identity.stop);
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if self.wait(deadline.saturating_duration_since(Instant::now()))?.is_some() {
                return Ok(());
            }
        }
        self.signal(Signal::SIGKILL);
        self.child.kill().map_err(ServersError::system(format!("kill {}", self.identity.program)))?;
        self.child.wait().map_err(ServersError::system(format!("wait for {}", self.identity.program)))?;
        Err(self.timed_out("stop", TIMEOUT))
    }

    /// If the process has just ended, there is nothing to signal; the caller's wait notices its end.
    fn signal(&self, signal: Signal) {
        let child = pid(&self.child);
        if self.identity.group {
            let _ = killpg(child, signal);
        } else {
            let _ = kill(self.server_pid().unwrap_or(child), signal);
        }
    }

    fn server_pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.identity.pid_file.as_ref()?).ok()?;
        let pid: i32 = text.lines().next()?.trim().parse().ok()?;
        (pid > 1).then(|| Pid::from_raw(pid))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If unwinding stops a server, another error is already being reported.
        let _ = self.end();
    }
}

fn pidfd(child: &Child) -> nix::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) takes two integers; the child has not been waited for, so it still has its pid.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid(child).as_raw(), 0) })?;
    let fd = i32::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn pid(child: &Child) -> Pid {
    // A pid fits: the kernel's limit is 2²².
    Pid::from_raw(child.id().cast_signed())
}
