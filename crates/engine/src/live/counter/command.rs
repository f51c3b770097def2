//! Runs a shell command for a number: bounded in time and output, and only while nothing is more urgent.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;

use super::{Failure, OUTPUT_LIMIT, first_line};
use crate::live::wait::{self, ProcessFd};

/// Runs commands, one at a time.
#[derive(Debug)]
pub(super) struct Shell {
    mask: SigSet,
    pub(super) time_limit: Duration,
    /// Killed, but possibly not dead yet: a process that waits for a disk dies later.
    killed: Vec<Child>,
}

impl Shell {
    pub(super) fn new(mask: SigSet, time_limit: Duration) -> Self {
        Self { mask, time_limit, killed: Vec::new() }
    }

    /// Waits for those that were killed, which takes a moment, so that none is left as a zombie.
    fn reap(&mut self) {
        const MOMENT: Duration = Duration::from_millis(100);
        for child in &mut self.killed {
            if let Ok(process) = ProcessFd::open(Pid::from_raw(child.id().cast_signed())) {
                let _ = wait::ready(&[process.as_fd()], MOMENT);
            }
            let _ = child.try_wait();
        }
    }

    /// The output of `command`. None of its processes is left running.
    pub(super) fn ask(&mut self, command: &str, urgent: &[BorrowedFd<'_>]) -> Result<Vec<u8>, Failure> {
        self.killed.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let is_urgent = wait::ready(urgent, Duration::ZERO).is_ok_and(|ready| ready.contains(&true));
        if is_urgent {
            return Err(Failure::Interrupted);
        }
        let mut child = self.start(command).map_err(|e| Failure::Passing(e.to_string()))?;
        let answer = listen(&mut child, self.time_limit, urgent);
        // It leads its group and has not been waited for, so the PID is still its own.
        let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                self.killed.push(child);
                return Err(failure);
            }
        };
        let status = child.wait().map_err(|e| Failure::Passing(e.to_string()))?;
        if status.success() {
            return Ok(answer.text);
        }
        let complaint = first_line(&String::from_utf8_lossy(&answer.complaint));
        let why = if complaint.is_empty() { String::new() } else { format!(" ({complaint})") };
        Err(Failure::Passing(format!("{status}{why}")))
    }

    /// Starts a process group of its own, which ends as a whole and does not get the terminal's keys.
    fn start(&self, command: &str) -> std::io::Result<Child> {
        let mask = self.mask;
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).process_group(0);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: between fork and exec the closure only calls sigprocmask(2), which is async-signal-safe.
        unsafe { shell.pre_exec(move || Ok(mask.thread_set_mask()?)) };
        shell.spawn()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.reap();
    }
}

#[derive(Debug, Default)]
struct Answer {
    text: Vec<u8>,
    complaint: Vec<u8>,
}

/// Collects the output of `child` until it has ended.
fn listen(child: &mut Child, limit: Duration, urgent: &[BorrowedFd<'_>]) -> Result<Answer, Failure> {
    let passing = |error: &dyn std::fmt::Display| Failure::Passing(error.to_string());
    let end = Instant::now() + limit;
    let process = ProcessFd::open(Pid::from_raw(child.id().cast_signed())).map_err(|e| passing(&e))?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    for pipe in [out.as_ref().map(AsFd::as_fd), err.as_ref().map(AsFd::as_fd)].into_iter().flatten() {
        fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|e| passing(&e))?;
    }
    let mut answer = Answer::default();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Unfit(format!("no answer within {limit:?}")));
        }
        let mut fds = vec![process.as_fd()];
        fds.extend(urgent);
        let own = fds.len();
        fds.extend(out.as_ref().map(AsFd::as_fd));
        fds.extend(err.as_ref().map(AsFd::as_fd));
        let ready = wait::ready(&fds, left).map_err(|e| passing(&e))?;
        let (ended, is_urgent) = (ready[0], ready[1..own].contains(&true));
        drain(&mut out, &mut answer.text).map_err(|e| passing(&e))?;
        drain(&mut err, &mut answer.complaint).map_err(|e| passing(&e))?;
        if answer.text.len() + answer.complaint.len() > OUTPUT_LIMIT {
            return Err(Failure::Unfit(format!("it writes more than {} KiB", OUTPUT_LIMIT >> 10)));
        }
        if ended {
            return Ok(answer);
        }
        if is_urgent {
            return Err(Failure::Interrupted);
        }
    }
}

/// Reads the available data, up to slightly more than the limit; `None` at the end of the pipe.
fn drain(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) -> std::io::Result<()> {
    let mut chunk = [0; 4096];
    while let Some(open) = pipe
        && into.len() <= OUTPUT_LIMIT
    {
        match open.read(&mut chunk) {
            Ok(0) => *pipe = None,
            Ok(n) => into.extend_from_slice(&chunk[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
