//! `user-spin-barrier`: phases with a barrier that spins in user mode, as in SPLASH-2x's volrend (Listing 1
//! of the TPDS paper).
//!
//! Synchronisation: a counter is decremented under a `pthread` mutex and then read in a loop until it is 0.
//! No system call, so no idle vCPU and nothing for retention to do; and no pause instruction, so neither the
//! processor's pause-loop exits nor the hypervisor notice it. With more threads than vCPUs, or when the host
//! preempts a vCPU, waiters burn whole time slices. Self-check: that of `barrier`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::barrier::{PHASES, phases};
use super::mutex::PthreadMutex;
use super::spec::Spec;
use super::{Amount, Outcome, Settings, WorkloadError};

pub(super) const SPEC: Spec = Spec {
    name: "user-spin-barrier",
    about: "threads compute for 50 us and read a counter in a loop until all have come, as volrend does; one \
            operation is one phase",
    variants: &[PHASES],
};

pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let count_down = CountDown::new(settings.threads);
    phases(SPEC.name, amount, settings, |phase| count_down.wait(phase))
}

/// Listing 1, with two alternating counters so that it can be reused.
struct CountDown {
    threads: u64,
    lock: PthreadMutex<()>,
    counters: [AtomicU64; 2],
}

impl CountDown {
    fn new(threads: usize) -> Self {
        let threads = threads as u64;
        let counters = [AtomicU64::new(threads), AtomicU64::new(threads)];
        Self { threads, lock: PthreadMutex::new(()), counters }
    }

    #[allow(clippy::missing_spin_loop, reason = "the listing has none, and that is the point")]
    fn wait(&self, phase: u64) {
        let odd = usize::from(phase % 2 == 1);
        let (counter, next) = (&self.counters[odd], &self.counters[1 - odd]);
        self.lock.section(|()| {
            let left = counter.load(Ordering::Relaxed) - 1;
            if left == 0 {
                // All threads are here, so none reads the other counter any more.
                next.store(self.threads, Ordering::Relaxed);
            }
            counter.store(left, Ordering::Release);
        });
        while counter.load(Ordering::Acquire) != 0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_take_turns() {
        let alone = CountDown::new(1);
        let values = || alone.counters.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        alone.wait(0);
        assert_eq!(values(), [0, 1]);
        alone.wait(1);
        assert_eq!(values(), [1, 0]);
    }
}
