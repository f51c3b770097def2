//! Signals wait while the machine's settings are changed for a measurement.

use std::mem::MaybeUninit;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

/// While this lives, the signals that would end the process wait; then they take effect.
pub(super) struct Uninterrupted {
    before: SigSet,
}

impl Uninterrupted {
    pub(super) fn begin() -> anyhow::Result<Self> {
        let mut before = SigSet::empty();
        // Threads that are started meanwhile inherit the mask.
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&fatal()), Some(&mut before))?;
        Ok(Self { before })
    }

    /// Whether one of them waits.
    pub(super) fn pending(&self) -> bool {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigpending` writes the whole set through a pointer that is valid for it; the set is read only if
        // it says that it did.
        let pending = unsafe {
            if libc::sigpending(set.as_mut_ptr()) != 0 {
                return false;
            }
            SigSet::from_sigset_t_unchecked(set.assume_init())
        };
        pending.iter().any(|signal| fatal().contains(signal) && !self.before.contains(signal))
    }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        // The mask that was in force before is a valid one, so this cannot fail.
        let _ = self.before.thread_set_mask();
    }
}

fn fatal() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}
