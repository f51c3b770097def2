//! Waiting for the next look, the end of the workload, or a signal.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::unistd::Pid;

use super::LiveError;

/// The signals that are handled rather than left to kill the engine.
const SIGNALS: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// `si_code` of a signal that the kernel sent itself: by a key on the terminal, it reaches the whole process group.
const SI_KERNEL: i32 = 0x80;

/// Signals of this process, as a file descriptor. Blocks them from the moment it is made: make it before any
/// thread and any child.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
    /// The mask before, which a child must have.
    before: SigSet,
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) signal: Signal,
    /// The terminal sent it to the whole process group, the workload included.
    pub(super) to_group: bool,
}

impl Signals {
    /// Blocks the signals and opens the descriptor.
    ///
    /// # Errors
    /// The kernel refuses (it is out of descriptors).
    pub fn block() -> Result<Self, LiveError> {
        let mask: SigSet = SIGNALS.into_iter().collect();
        let before =
            mask.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(|e| LiveError::io("block signals", e))?;
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(|e| LiveError::io("open a signal descriptor", e))?;
        Ok(Self { fd, before })
    }

    /// The signals that were blocked before.
    pub(super) fn before(&self) -> SigSet {
        self.before
    }

    pub(super) fn next(&mut self) -> Result<Option<Arrived>, LiveError> {
        let info = self.fd.read_signal().map_err(|e| LiveError::io("read a signal", e))?;
        Ok(info.and_then(|info| {
            let signal = Signal::try_from(info.ssi_signo.cast_signed()).ok()?;
            Some(Arrived { signal, to_group: info.ssi_code == SI_KERNEL })
        }))
    }
}

/// A process that can be waited for without racing for its number.
#[derive(Debug)]
pub struct ProcessFd {
    fd: OwnedFd,
}

impl ProcessFd {
    /// The process `pid`.
    ///
    /// # Errors
    /// It does not exist, or the kernel is older than 5.3.
    pub fn open(pid: Pid) -> Result<Self, LiveError> {
        // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
        let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0);
        let fd = fd.ok_or_else(|| LiveError::Process {
            pid: pid.as_raw(),
            source: std::io::Error::last_os_error(),
        })?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Whether the process has ended.
    pub(super) fn ended(&self) -> bool {
        poll_until(&[self.fd.as_fd().as_raw_fd()], Duration::ZERO).is_ok_and(|ready| ready[0])
    }
}

/// Waits for a signal, the end of the process or what else there is, at most until `deadline`; true when something is
/// ready.
pub(super) fn wait(
    signals: &Signals,
    process: Option<&ProcessFd>,
    other: Option<BorrowedFd<'_>>,
    deadline: Instant,
) -> Result<bool, LiveError> {
    let mut fds = vec![signals.fd.as_fd().as_raw_fd()];
    fds.extend(process.map(|p| p.fd.as_raw_fd()));
    fds.extend(other.map(|fd| fd.as_raw_fd()));
    let left = deadline.saturating_duration_since(Instant::now());
    Ok(poll_until(&fds, left)?.contains(&true))
}

fn poll_until(fds: &[RawFd], left: Duration) -> Result<Vec<bool>, LiveError> {
    // SAFETY: the callers own the descriptors and keep them open during the call.
    let borrowed = fds.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) });
    let mut polled: Vec<PollFd<'_>> = borrowed.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let timeout = TimeSpec::nanoseconds(i64::try_from(left.as_nanos()).unwrap_or(i64::MAX));
    match ppoll(&mut polled, Some(timeout), None) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(errno) => return Err(LiveError::io("wait", errno)),
    }
    Ok(polled.iter().map(|p| p.any().unwrap_or(false)).collect())
}
