//! Turns Ctrl-C and SIGTERM into a flag, so that a run can end cleanly: stop children, write results.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The first signal received; 0 if none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// Readable once a signal has arrived: one that comes just before a wait begins must end it, too.
static ARRIVED: OnceLock<(PipeReader, PipeWriter)> = OnceLock::new();
/// The descriptor of its writing end, for the handler; -1 before [`watch`].
static WRITER: AtomicI32 = AtomicI32::new(-1);

extern "C" fn note(signal: libc::c_int) {
    // The first one counts: others can arrive while the run ends.
    if SIGNAL.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        let before = Errno::last_raw();
        // SAFETY: write(2) is async-signal-safe and reads the one byte; the descriptor is never closed.
        let _ = unsafe { libc::write(WRITER.load(Ordering::Relaxed), [0_u8].as_ptr().cast(), 1) };
        Errno::set_raw(before);
    }
}

/// From now on, SIGINT and SIGTERM set the flag, end waits for [`arrival`] and make blocking calls return `EINTR`.
///
/// # Errors
/// Those of `pipe(2)`.
pub fn watch() -> io::Result<()> {
    if ARRIVED.get().is_none() {
        let pipe = io::pipe()?;
        WRITER.store(ARRIVED.get_or_init(|| pipe).1.as_raw_fd(), Ordering::Relaxed);
    }
    // Without SA_RESTART: a wait must return for the flag to be checked.
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler uses atomics and write(2), which are async-signal-safe.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// What `poll(2)` waits for beside its other descriptors, to return when a signal has arrived.
pub(crate) fn arrival() -> Option<PollFd<'static>> {
    ARRIVED.get().map(|(reader, _)| PollFd::new(reader.as_fd(), PollFlags::POLLIN))
}

/// Whether one of the signals has arrived since [`watch`].
pub fn interrupted() -> bool {
    SIGNAL.load(Ordering::Relaxed) != 0
}

/// The first signal since [`watch`], if any.
pub fn interrupted_by() -> Option<Signal> {
    Signal::try_from(SIGNAL.load(Ordering::Relaxed)).ok()
}

/// Exit status of a run that ended early, as a shell reports the end by that signal.
pub fn status() -> u8 {
    let signal = match SIGNAL.load(Ordering::Relaxed) {
        // The measured command got the signal instead of this program, as by Ctrl-C.
        0 => libc::SIGINT,
        signal => signal,
    };
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
