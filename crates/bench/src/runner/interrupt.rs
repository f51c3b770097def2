//! Ctrl-C and SIGTERM as a flag, so that a run can end in order: children stopped, results written.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
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
    INTERRUPTED.load(Ordering::Relaxed)
}
