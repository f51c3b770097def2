//! Turns Ctrl-C and SIGTERM into a flag, so that a run can end cleanly: stop children, write results.

use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The first signal received; 0 if none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    // The first one counts: others can arrive while the run ends.
    let _ = SIGNAL.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
}

/// From now on, SIGINT and SIGTERM set the flag and make blocking calls return `EINTR`.
///
/// # Errors
/// Those of `sigaction(2)`, which do not occur for these two signals.
pub fn watch() -> nix::Result<()> {
    // Without SA_RESTART: a wait must return for the flag to be checked.
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
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
