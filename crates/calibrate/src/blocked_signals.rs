//! Holds signals back while a measurement changes the machine's settings.

use std::mem::MaybeUninit;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

/// Blocks the signals that would end the process, until it is dropped.
pub(super) struct BlockedSignals {
    before: SigSet,
}

impl BlockedSignals {
    pub(super) fn block() -> anyhow::Result<Self> {
        let mut before = SigSet::empty();
        // Threads started in the meantime inherit the mask.
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&fatal()), Some(&mut before))?;
        Ok(Self { before })
    }

    /// Whether such a signal is pending.
    pub(super) fn pending(&self) -> bool {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigpending` fills the whole set through a valid pointer, and the set is read only if it reports
        // success.
        let pending = unsafe {
            if libc::sigpending(set.as_mut_ptr()) != 0 {
                return false;
            }
            SigSet::from_sigset_t_unchecked(set.assume_init())
        };
        pending.iter().any(|signal| fatal().contains(signal) && !self.before.contains(signal))
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // Restoring a mask that was in effect before cannot fail.
        let _ = self.before.thread_set_mask();
    }
}

fn fatal() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}
