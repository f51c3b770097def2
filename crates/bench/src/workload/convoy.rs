//! `convoy`: threads queue for one lock, as in `sysbench threads`.
//!
//! Synchronisation: one `pthread` mutex (`std::sync::Mutex` spins before it sleeps, which would hide the
//! convoy). The holder yields inside the critical section, so the others fall asleep on the lock, and locks
//! again as soon as it has unlocked. This is the counter-example: the faster a waiter wakes up, the sooner it
//! contends for the lock again, and the fewer sections get done. Self-check: a counter that only the mutex protects must equal the number
//! of critical sections.

use std::cell::UnsafeCell;
use std::thread;
use std::time::{Duration, Instant};

use super::work::{check, run_threads};
use super::{Outcome, WorkloadError};

pub(super) const NAME: &str = "convoy";

/// The clock is read once in so many critical sections.
const SECTIONS_PER_CLOCK: u32 = 16;

/// A counter behind a `pthread` mutex.
struct Locked {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    counter: UnsafeCell<u64>,
}

// SAFETY: the counter is only accessed with the mutex held, and a pthread mutex may be used by all threads.
unsafe impl Sync for Locked {}

impl Locked {
    /// May be moved until it is first locked, like every statically initialised pthread mutex.
    const fn new() -> Self {
        Self { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), counter: UnsafeCell::new(0) }
    }

    /// Calls `inside` with the counter while the mutex is held. A default mutex that is initialised and not
    /// locked recursively has no way to fail, so the results of lock and unlock say nothing.
    fn section<T>(&self, inside: impl FnOnce(&mut u64) -> T) -> T {
        // SAFETY: the mutex is initialised, lives as long as `self` and is not held by this thread.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        // SAFETY: the mutex is held, so no other reference to the counter exists.
        let result = inside(unsafe { &mut *self.counter.get() });
        // SAFETY: this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
        result
    }
}

pub(super) fn run(duration: Duration, threads: usize) -> Result<Outcome, WorkloadError> {
    let locked = Locked::new();
    let (sections, elapsed) = run_threads(NAME, threads, |_| {
        let start = Instant::now();
        let mut sections = 0_u64;
        while start.elapsed() < duration {
            for _ in 0..SECTIONS_PER_CLOCK {
                locked.section(|counter| {
                    // Read and written on either side of the yield: two holders at once would lose counts.
                    let before = *counter;
                    thread::yield_now();
                    *counter = before + 1;
                });
                sections += 1;
            }
        }
        Ok(sections)
    })?;
    let operations = sections.iter().sum();
    check_counter(operations, locked.section(|counter| *counter))?;
    Ok(Outcome { operations, elapsed, checks: 1 })
}

fn check_counter(sections: u64, counter: u64) -> Result<(), WorkloadError> {
    check(NAME, "count of critical sections", sections, counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_a_lost_count() {
        assert!(check_counter(5, 5).is_ok());
        assert!(check_counter(5, 4).is_err());
    }
}
