//! The event queue: one timer per entity, in an indexed 4-ary heap ordered by (time, sequence).
//!
//! Every entity has at most one event to come, so that the heap never holds a stale one, never allocates after it was
//! made, and stays as small as the machine. Four children per node make the heap half as deep, and the children of a
//! node share one or two cache lines.

use crate::ids::Ns;

const ARITY: usize = 4;
const ABSENT: u32 = u32::MAX;

/// How many bits of an entry tell the timer.
const TIMER_BITS: u32 = 24;

/// A time, a sequence number and a timer, packed so that comparing entries is comparing numbers: of two events at the same
/// time the one that was set first comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

impl Entry {
    /// There are fewer timers than 2^24 and fewer settings than 2^40, since the events of a simulation are limited.
    fn new(at: Ns, sequence: u64, timer: usize) -> Self {
        debug_assert!(sequence >> (64 - TIMER_BITS) == 0 && timer >> TIMER_BITS == 0);
        Self(u128::from(at) << 64 | u128::from(sequence << TIMER_BITS | timer as u64))
    }

    #[allow(clippy::cast_possible_truncation, reason = "the upper half")]
    fn at(self) -> Ns {
        (self.0 >> 64) as Ns
    }

    #[allow(clippy::cast_possible_truncation, reason = "the lowest bits")]
    fn timer(self) -> usize {
        (self.0 as usize) & ((1 << TIMER_BITS) - 1)
    }
}

/// The timers of a simulated machine.
#[derive(Debug)]
pub struct Timers {
    heap: Vec<Entry>,
    /// By timer: where it is in the heap.
    place: Vec<u32>,
    sequence: u64,
}

impl Timers {
    /// `count` timers, none of them set.
    pub fn new(count: usize) -> Self {
        Self { heap: Vec::with_capacity(count), place: vec![ABSENT; count], sequence: 0 }
    }

    /// How many are set.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// When the next event is.
    pub fn next_at(&self) -> Option<Ns> {
        self.heap.first().map(|e| e.at())
    }

    /// When `timer` goes off, if it is set.
    pub fn at(&self, timer: usize) -> Option<Ns> {
        self.heap.get(self.place[timer] as usize).map(|e| e.at())
    }

    /// Sets `timer` to go off at `at`, whatever it was set to.
    pub fn set(&mut self, timer: usize, at: Ns) {
        self.sequence += 1;
        let entry = Entry::new(at, self.sequence, timer);
        let place = self.place[timer];
        if place == ABSENT {
            self.heap.push(entry);
            self.rise(self.heap.len() - 1, entry);
        } else {
            let place = place as usize;
            if entry < self.heap[place] {
                self.rise(place, entry);
            } else {
                self.sink(place, entry);
            }
        }
    }

    /// Stops `timer`, if it is set.
    pub fn cancel(&mut self, timer: usize) {
        let place = self.place[timer];
        if place != ABSENT {
            self.remove(place as usize);
        }
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Ns, usize)> {
        let first = *self.heap.first()?;
        self.remove(0);
        Some((first.at(), first.timer()))
    }

    fn remove(&mut self, place: usize) {
        self.place[self.heap[place].timer()] = ABSENT;
        let Some(last) = self.heap.pop() else { return };
        if place == self.heap.len() {
            return;
        }
        if place > 0 && last < self.heap[(place - 1) / ARITY] {
            self.rise(place, last);
        } else {
            self.sink(place, last);
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "there are fewer than 2^32 timers")]
    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.place[entry.timer()] = place as u32;
    }

    /// Puts `entry` at `place` or above.
    fn rise(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    /// Puts `entry` at `place` or below.
    fn sink(&mut self, mut place: usize, entry: Entry) {
        loop {
            let first = place * ARITY + 1;
            let end = (first + ARITY).min(self.heap.len());
            let Some(least) = (first..end).min_by_key(|&child| self.heap[child]) else { break };
            if self.heap[least] >= entry {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_at_the_same_time_come_in_the_order_they_were_set() {
        let mut timers = Timers::new(4);
        for timer in [2, 0, 3, 1] {
            timers.set(timer, 7);
        }
        timers.set(0, 7);
        let order: Vec<_> = std::iter::from_fn(|| timers.pop()).map(|(_, timer)| timer).collect();
        assert_eq!(order, [2, 3, 1, 0], "setting again goes to the end of the line");
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_list(
            steps in proptest::collection::vec((0usize..40, 0u64..50, 0u8..4), 1..400)
        ) {
            let mut timers = Timers::new(40);
            let mut model: Vec<(u64, usize, usize)> = Vec::new();
            for (step, (timer, at, what)) in steps.into_iter().enumerate() {
                match what {
                    0 => {
                        timers.cancel(timer);
                        model.retain(|e| e.2 != timer);
                    }
                    1 => {
                        let next = model.iter().min().copied();
                        model.retain(|e| Some(*e) != next);
                        prop_assert_eq!(timers.pop(), next.map(|(at, _, timer)| (at, timer)));
                    }
                    _ => {
                        timers.set(timer, at);
                        model.retain(|e| e.2 != timer);
                        model.push((at, step, timer));
                    }
                }
                prop_assert_eq!(timers.len(), model.len());
                prop_assert_eq!(timers.next_at(), model.iter().min().map(|e| e.0));
            }
        }
    }
}
