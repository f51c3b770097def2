//! `pipeline`: items pass stages, as in dedup and ferret of PARSEC.
//!
//! Synchronisation: a bounded queue between two stages, with a mutex and a condition variable for either
//! side. A stage works about 5 us on an item and the queues are short, so stages mostly wake each other up.
//! Self-check: every stage checks the item's checksum; at the end the items must come in order, and of every
//! 64th the whole computation is repeated and compared.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::work::{ROUNDS_PER_US, check, mix, run_threads};
use super::{Outcome, WorkloadError};

pub(super) const NAME: &str = "pipeline";

const ROUNDS_PER_STAGE: u32 = 5 * ROUNDS_PER_US;
const QUEUE_LENGTH: usize = 2;
/// The clock is read once in so many items.
const ITEMS_PER_CLOCK: u64 = 16;
/// The computation on one in so many items is repeated.
const ITEMS_PER_REPETITION: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    sequence: u64,
    value: u64,
    checksum: u64,
}

impl Item {
    fn new(sequence: u64) -> Self {
        Self::sealed(sequence, sequence)
    }

    fn sealed(sequence: u64, value: u64) -> Self {
        Self { sequence, value, checksum: sequence.rotate_left(32) ^ value }
    }

    /// One stage's work on the item, if it arrived whole.
    fn process(self) -> Result<Self, WorkloadError> {
        check(NAME, "checksum of an item", Self::sealed(self.sequence, self.value).checksum, self.checksum)?;
        Ok(Self::sealed(self.sequence, mix(self.value, ROUNDS_PER_STAGE)))
    }

    /// What the last stage makes sure of, for the item that comes as number `sequence`.
    fn check(self, sequence: u64, stages: usize) -> Result<(), WorkloadError> {
        check(NAME, "order of the items", sequence, self.sequence)?;
        if sequence.is_multiple_of(ITEMS_PER_REPETITION) {
            let value = (0..stages).fold(sequence, |value, _| mix(value, ROUNDS_PER_STAGE));
            check(NAME, "value of an item", value, self.value)?;
        }
        Ok(())
    }
}

/// A bounded queue between two stages.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    not_empty: Condvar,
    not_full: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room and appends; false if the queue was closed.
    fn push(&self, item: Item) -> bool {
        let full = |state: &mut State| state.items.len() >= QUEUE_LENGTH && !state.closed;
        let mut state = self.not_full.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return false;
        }
        state.items.push_back(item);
        drop(state);
        self.not_empty.notify_one();
        true
    }

    /// Waits for an item and takes it; none once the queue is closed and empty.
    fn pop(&self) -> Option<Item> {
        let empty = |state: &mut State| state.items.is_empty() && !state.closed;
        let mut state = self.not_empty.wait_while(self.lock(), empty).unwrap_or_else(PoisonError::into_inner);
        let item = state.items.pop_front();
        drop(state);
        self.not_full.notify_one();
        item
    }

    fn close(&self) {
        self.lock().closed = true;
        self.not_empty.notify_all();
        self.not_full.notify_all();
    }
}

/// Closes a stage's queues however the stage ends, so that its neighbours end too.
struct Closing<'q>(&'q [Queue]);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Queue::close);
    }
}

pub(super) fn run(duration: Duration, stages: usize) -> Result<Outcome, WorkloadError> {
    // Queue i leads from stage i to stage i + 1.
    let queues: Vec<Queue> = (1..stages).map(|_| Queue::default()).collect();
    let (counts, elapsed) = run_threads(NAME, stages, |stage| {
        let _closing = Closing(&queues[stage.saturating_sub(1)..(stage + 1).min(queues.len())]);
        if stage == 0 {
            feed(duration, &queues[0])
        } else if let Some(next) = queues.get(stage) {
            pass_on(&queues[stage - 1], next)
        } else {
            collect(&queues[stage - 1], stages)
        }
    })?;
    let (fed, collected) = (counts[0], counts[stages - 1]);
    check(NAME, "number of items", fed, collected)?;
    Ok(Outcome { operations: collected, elapsed, checks: collected * stages as u64 })
}

/// The first stage: makes items until the time is over.
fn feed(duration: Duration, next: &Queue) -> Result<u64, WorkloadError> {
    let start = Instant::now();
    let mut count = 0_u64;
    while !count.is_multiple_of(ITEMS_PER_CLOCK) || start.elapsed() < duration {
        if !next.push(Item::new(count).process()?) {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// A stage in the middle.
fn pass_on(previous: &Queue, next: &Queue) -> Result<u64, WorkloadError> {
    let mut count = 0;
    while let Some(item) = previous.pop() {
        if !next.push(item.process()?) {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// The last stage: checks what comes out.
fn collect(previous: &Queue, stages: usize) -> Result<u64, WorkloadError> {
    let mut count = 0;
    while let Some(item) = previous.pop() {
        item.process()?.check(count, stages)?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_a_changed_item() {
        let item = Item::new(9);
        assert!(item.process().is_ok());
        assert!(Item { value: item.value ^ 1, ..item }.process().is_err());
        assert!(Item { checksum: 0, ..item }.process().is_err());
    }

    #[test]
    fn notices_a_lost_item_and_a_skipped_stage() {
        let item = Item::new(ITEMS_PER_REPETITION).process().unwrap();
        assert!(item.check(ITEMS_PER_REPETITION, 1).is_ok());
        assert!(item.check(ITEMS_PER_REPETITION - 1, 1).is_err());
        assert!(item.check(ITEMS_PER_REPETITION, 2).is_err());
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_takes_no_more() {
        let queue = Queue::default();
        assert!(queue.push(Item::new(1)));
        queue.close();
        assert!(!queue.push(Item::new(2)));
        assert_eq!(queue.pop(), Some(Item::new(1)));
        assert_eq!(queue.pop(), None);
    }
}
