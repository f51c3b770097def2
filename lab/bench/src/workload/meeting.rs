//! Ways to wait at a barrier.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Kind;

/// How long a waiter spins before it sleeps: streamcluster's order of magnitude, and several times a
/// wake-up's latency.
const SPIN_TIME: Duration = Duration::from_micros(100);

/// The clock is read once per this many pause instructions, which take some 40 ns each.
const PAUSES_PER_CLOCK: u32 = 64;

/// A reusable barrier.
pub(super) enum Meeting {
    /// A mutex and a condition variable.
    Block(Barrier),
    /// An atomic generation number, which waiters read in a loop with the pause instruction.
    Spin(Generations),
    /// Like `Spin` for 0.1 ms, then a condition variable.
    SpinThenBlock(Generations),
}

impl Meeting {
    pub(super) fn new(kind: Option<Kind>, threads: usize) -> Self {
        match kind {
            Some(Kind::Spin) => Self::Spin(Generations::new(threads)),
            Some(Kind::SpinThenBlock) => Self::SpinThenBlock(Generations::new(threads)),
            _ => Self::Block(Barrier::new(threads)),
        }
    }

    /// Returns once all threads have called it.
    pub(super) fn wait(&self) {
        match self {
            Self::Block(barrier) => drop(barrier.wait()),
            Self::Spin(generations) => {
                if let Some(generation) = generations.arrive() {
                    while !generations.spin(generation) {}
                }
            }
            Self::SpinThenBlock(generations) => {
                if let Some(generation) = generations.arrive() {
                    generations.spin_then_sleep(generation);
                }
            }
        }
    }
}

/// Meetings are numbered; the last thread to arrive starts the next number.
pub(super) struct Generations {
    threads: usize,
    arrived: AtomicUsize,
    generation: AtomicU32,
    /// Number of sleeping threads, to avoid unnecessary signals.
    sleepers: Mutex<u32>,
    changed: Condvar,
}

impl Generations {
    fn new(threads: usize) -> Self {
        Self {
            threads,
            arrived: AtomicUsize::new(0),
            generation: AtomicU32::new(0),
            sleepers: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    /// The number of the meeting to wait for; `None` for the last thread, which has ended it.
    fn arrive(&self) -> Option<u32> {
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 < self.threads {
            return Some(generation);
        }
        // Before the number changes: a thread that sees the new one can arrive again at once.
        self.arrived.store(0, Ordering::Relaxed);
        // Under the lock: a thread that saw the old number has either not gone to sleep yet or is woken.
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        self.generation.store(generation.wrapping_add(1), Ordering::Release);
        if *sleepers > 0 {
            self.changed.notify_all();
        }
        None
    }

    fn is_over(&self, generation: u32) -> bool {
        self.generation.load(Ordering::Acquire) != generation
    }

    /// Spins for a few microseconds; returns whether the meeting is over.
    fn spin(&self, generation: u32) -> bool {
        (0..PAUSES_PER_CLOCK).any(|_| {
            spin_loop();
            self.is_over(generation)
        })
    }

    fn spin_then_sleep(&self, generation: u32) {
        let start = Instant::now();
        while start.elapsed() < SPIN_TIME {
            if self.spin(generation) {
                return;
            }
        }
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        *sleepers += 1;
        let waiting = |_: &mut u32| !self.is_over(generation);
        sleepers = self.changed.wait_while(sleepers, waiting).unwrap_or_else(PoisonError::into_inner);
        *sleepers -= 1;
    }
}
