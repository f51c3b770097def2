//! Ctrl-C and SIGTERM as a flag, so that a run can end in order: children stopped, results written.

use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The first of the signals that came; 0 before one does.
static CAME: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    // The first one decides: others may follow while the run ends.
    let _ = CAME.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
}

/// From now on SIGINT and SIGTERM set the flag instead of ending the process. Blocking calls return `EINTR`.
///
/// # Errors
/// What `sigaction(2)` reports; it does not happen for these two signals.
pub fn watch() -> nix::Result<()> {
    // Without SA_RESTART: a wait has to return for the flag to be seen.
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Whether one of the signals has come since [`watch`].
pub fn interrupted() -> bool {
    CAME.load(Ordering::Relaxed) != 0
}

/// The first signal that has come since [`watch`], if any.
pub fn interrupted_by() -> Option<Signal> {
    Signal::try_from(CAME.load(Ordering::Relaxed)).ok()
}

/// The exit status of a run that ended early: as a shell reports the end by the signal that came.
pub fn status() -> u8 {
    let signal = match CAME.load(Ordering::Relaxed) {
        // It met the command that was measured, and not this program, as Ctrl-C does.
        0 => libc::SIGINT,
        signal => signal,
    };
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
