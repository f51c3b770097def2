//! `barrier`: phases of computation, as in the SPLASH-2x kernels.
//!
//! Synchronisation: every thread computes for about 50 us and waits at a `std::sync::Barrier` (a mutex and a
//! condition variable) for the others. Self-check: in every phase each thread adds its result and the phase's
//! number to a sum, which must come out as known beforehand.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::work::{ROUNDS_PER_US, check, mix, run_threads};
use super::{Outcome, WorkloadError};

pub(super) const NAME: &str = "barrier";

const ROUNDS: u32 = 50 * ROUNDS_PER_US;

/// The clock is read once in so many phases.
const PHASES_PER_CLOCK: u64 = 4;

pub(super) fn run(duration: Duration, threads: usize) -> Result<Outcome, WorkloadError> {
    let expected = Expected::of(threads);
    let barrier = Barrier::new(threads);
    // Two sums in turn: while thread 0 checks one, the others may already add to the other.
    let sums = [AtomicU64::new(0), AtomicU64::new(0)];
    // Only written by thread 0, before the barrier of the phase that it names. Hence every thread that
    // leaves that barrier sees it, and one still leaving the barrier before it is not misled.
    let last_phase = AtomicU64::new(u64::MAX);
    let (phases, elapsed) = run_threads(NAME, threads, |index| {
        let start = Instant::now();
        let mut failed = None;
        let mut phase = 0_u64;
        loop {
            let sum = &sums[usize::from(phase % 2 == 1)];
            sum.fetch_add(contribution(index).wrapping_add(phase), Ordering::Relaxed);
            let over = || phase.is_multiple_of(PHASES_PER_CLOCK) && start.elapsed() >= duration;
            if index == 0 && (failed.is_some() || over()) {
                last_phase.store(phase, Ordering::Relaxed);
            }
            barrier.wait();
            if index == 0 {
                // Nobody adds to this sum before thread 0 has passed the next barrier.
                failed = failed.or(expected.check(phase, sum.swap(0, Ordering::Relaxed)).err());
            }
            phase += 1;
            if last_phase.load(Ordering::Relaxed) < phase {
                return failed.map_or(Ok(phase), Err);
            }
        }
    })?;
    let operations = phases.first().copied().unwrap_or(0);
    Ok(Outcome { operations, elapsed, checks: operations })
}

/// What thread `index` computes in each phase.
fn contribution(index: usize) -> u64 {
    mix(black_box(index as u64), ROUNDS)
}

/// What the sums must be.
struct Expected {
    threads: u64,
    contributions: u64,
}

impl Expected {
    fn of(threads: usize) -> Self {
        let contributions = (0..threads).map(contribution).fold(0, u64::wrapping_add);
        Self { threads: threads as u64, contributions }
    }

    fn check(&self, phase: u64, sum: u64) -> Result<(), WorkloadError> {
        let expected = self.contributions.wrapping_add(phase.wrapping_mul(self.threads));
        check(NAME, "sum of a phase", expected, sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_a_thread_that_did_not_take_part() {
        let expected = Expected::of(2);
        let whole = contribution(0).wrapping_add(contribution(1)).wrapping_add(2 * 7);
        assert!(expected.check(7, whole).is_ok());
        assert!(expected.check(8, whole).is_err());
        assert!(expected.check(7, contribution(0).wrapping_add(7)).is_err());
    }
}
