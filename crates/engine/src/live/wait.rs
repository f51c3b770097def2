//! Waits for the next sample, the end of the workload, or a signal.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::unistd::Pid;

use super::LiveError;

/// Signals that are not blocked: their default action ends nothing, or they cannot be caught. A broken pipe
/// becomes an error of the write, see [`Signals::block`].
const NOT_BLOCKED: [i32; 8] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGCHLD,
    libc::SIGURG,
    libc::SIGWINCH,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGPIPE,
];

/// `si_code` of a signal that the kernel sent itself.
const SI_KERNEL: i32 = 0x80;

/// Signals that the terminal sends to the whole process group, by a key or on hangup.
const TERMINAL_SIGNALS: [i32; 5] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGHUP, libc::SIGCONT];

/// Every signal that would end or stop the engine and leave its changes behind, and SIGCONT. Includes faults:
/// those of the process itself are fatal, blocked or not.
pub(super) fn handled() -> SigSet {
    let named = 1..=libc::SIGSYS;
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the whole set before it is changed and read; `sigaddset` rejects
    // invalid numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in named.chain(real_time).filter(|number| !NOT_BLOCKED.contains(number)) {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        SigSet::from_sigset_t_unchecked(set.assume_init())
    }
}

/// Signals of this process, as a file descriptor. They are blocked on creation, so create it before any thread
/// or child; they stay blocked when it is dropped.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
    /// The previous mask, which a child must get.
    before: SigSet,
}

/// Who sent a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// Another process, or an inherited timer.
    Other,
    /// The terminal: the workload has got it, too.
    Terminal,
    /// A refused write of this process, which also returns an error.
    OwnWrite,
    /// The kernel, because this process has used up its CPU time.
    OwnCpuTime,
}

/// A received signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceivedSignal {
    pub(super) number: i32,
    pub(super) sender: Sender,
}

impl ReceivedSignal {
    fn new(number: i32, code: i32, pid: i32) -> Self {
        let by_kernel = code == SI_KERNEL;
        let sender = match number {
            libc::SIGXFSZ if pid == Pid::this().as_raw() => Sender::OwnWrite,
            libc::SIGXCPU if by_kernel => Sender::OwnCpuTime,
            _ if by_kernel && TERMINAL_SIGNALS.contains(&number) => Sender::Terminal,
            _ => Sender::Other,
        };
        Self { number, sender }
    }

    /// Forwards it to the command `pid`, unless that got it, too, or it concerns only this process.
    pub(super) fn forward(self, pid: Pid) {
        if self.sender == Sender::Other {
            // SAFETY: `kill` takes two numbers. Even if the command has just ended, nothing has waited for it
            // yet, so the PID is still its own.
            unsafe { libc::kill(pid.as_raw(), self.number) };
        }
    }
}

impl Signals {
    /// Blocks the signals and opens the descriptor. From now on a broken pipe is only an error of the write.
    ///
    /// # Errors
    /// The kernel refuses (no descriptors left). The signals are restored then.
    pub fn block() -> Result<Self, LiveError> {
        // SAFETY: no handler is installed, so none can misbehave.
        let ignored = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
        ignored.map_err(|e| LiveError::io("ignore a signal", e))?;
        let mask = handled();
        let before =
            mask.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(|e| LiveError::io("block signals", e))?;
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
        match fd {
            Ok(fd) => Ok(Self { fd, before }),
            Err(errno) => {
                // Valid, since it was in force a moment ago.
                let _ = before.thread_set_mask();
                Err(LiveError::io("open a signal descriptor", errno))
            }
        }
    }

    /// Delivers the signals that arrived meanwhile, with their default actions: the reason for blocking them is
    /// over.
    ///
    /// # Errors
    /// The kernel refuses to block them again.
    pub fn deliver_pending(&self) -> Result<(), LiveError> {
        let blocked = self.before.thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let blocked = blocked.map_err(|e| LiveError::io("unblock signals", e))?;
        blocked.thread_set_mask().map_err(|e| LiveError::io("block signals", e))
    }

    /// The signal mask before [`Self::block`].
    pub(super) fn before(&self) -> SigSet {
        self.before
    }

    /// The number of the next signal that has arrived, for a driver that forwards none. A refused write of this process
    /// is left out: its error reports it.
    ///
    /// # Errors
    /// The descriptor cannot be read.
    pub fn take(&mut self) -> Result<Option<i32>, LiveError> {
        while let Some(arrived) = self.next()? {
            if arrived.sender != Sender::OwnWrite {
                return Ok(Some(arrived.number));
            }
        }
        Ok(None)
    }

    pub(super) fn next(&mut self) -> Result<Option<ReceivedSignal>, LiveError> {
        let info = self.fd.read_signal().map_err(|e| LiveError::io("read a signal", e))?;
        Ok(info.map(|info| {
            ReceivedSignal::new(info.ssi_signo.cast_signed(), info.ssi_code, info.ssi_pid.cast_signed())
        }))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The next of the blocked signals in `set`, if one arrives within `time`. Needs no descriptor.
pub(super) fn next_of(set: &SigSet, time: Duration) -> Option<ReceivedSignal> {
    let time = TimeSpec::from_duration(time);
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the three pointers are valid for the call, and `info`, all zeroes, is a valid value even if the
    // kernel writes nothing. Only signals sent by processes have a PID; for others the number is not used.
    unsafe {
        let number = libc::sigtimedwait(set.as_ref(), info.as_mut_ptr(), time.as_ref());
        let info = info.assume_init();
        (number > 0).then(|| ReceivedSignal::new(number, info.si_code, info.si_pid()))
    }
}

/// A process that can be waited for without a race for its PID.
#[derive(Debug)]
pub struct ProcessFd {
    fd: OwnedFd,
}

impl ProcessFd {
    /// Opens the process `pid`.
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
        // SAFETY: the descriptor is new and owned by nothing else.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Whether the process has ended.
    pub fn ended(&self) -> bool {
        ready(&[self.as_fd()], Duration::ZERO).is_ok_and(|ready| ready[0])
    }
}

impl AsFd for ProcessFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits for a signal or `others`, at most until `deadline`; true if something is ready.
pub(super) fn wait(
    signals: &Signals,
    others: Vec<BorrowedFd<'_>>,
    deadline: Instant,
) -> Result<bool, LiveError> {
    let mut fds = others;
    fds.push(signals.as_fd());
    let left = deadline.saturating_duration_since(Instant::now());
    Ok(ready(&fds, left)?.contains(&true))
}

/// Which of `fds` are readable or have ended, as soon as one is or `left` has passed.
pub(super) fn ready(fds: &[BorrowedFd<'_>], left: Duration) -> Result<Vec<bool>, LiveError> {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    let timeout = TimeSpec::nanoseconds(i64::try_from(left.as_nanos()).unwrap_or(i64::MAX));
    match ppoll(&mut polled, Some(timeout), None) {
        Ok(_) => Ok(polled.iter().map(|p| p.any().unwrap_or(false)).collect()),
        // `poll` has written no results then.
        Err(nix::errno::Errno::EINTR) => Ok(vec![false; fds.len()]),
        Err(errno) => Err(LiveError::io("wait", errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_that_ends_a_process_is_handled() {
        let handled = handled();
        // SAFETY: the set is initialised.
        let has = |number| unsafe { libc::sigismember(handled.as_ref(), number) == 1 };
        for number in
            [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF, libc::SIGUSR1, libc::SIGXCPU, libc::SIGIO]
        {
            assert!(has(number), "{number}");
        }
        assert!(has(libc::SIGRTMIN()) && has(libc::SIGRTMAX()) && has(libc::SIGABRT) && has(libc::SIGPWR));
        assert!(NOT_BLOCKED.into_iter().all(|number| !has(number)));
    }

    #[test]
    fn who_sent_a_signal_decides_who_gets_it() {
        let own = Pid::this().as_raw();
        for (number, code, pid, sender) in [
            (libc::SIGINT, SI_KERNEL, 0, Sender::Terminal),
            (libc::SIGINT, libc::SI_USER, 1, Sender::Other),
            // `alarm` survives `exec`, so it is the command's.
            (libc::SIGALRM, SI_KERNEL, 0, Sender::Other),
            (libc::SIGXCPU, SI_KERNEL, 0, Sender::OwnCpuTime),
            (libc::SIGXCPU, libc::SI_USER, 1, Sender::Other),
            (libc::SIGXFSZ, libc::SI_USER, own, Sender::OwnWrite),
            (libc::SIGXFSZ, libc::SI_USER, own + 1, Sender::Other),
        ] {
            assert_eq!(ReceivedSignal::new(number, code, pid), ReceivedSignal { number, sender });
        }
    }
}
