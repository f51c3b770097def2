//! The event queue: one timer per entity, in an indexed 4-ary heap ordered by (time, sequence).
//!
//! Each entity has at most one pending event, so the heap never holds stale events, never allocates after
//! construction, and stays as small as the machine. Four children per node halve its depth and share one or
//! two cache lines.
//!
//! Most events set another timer soon. So after a pop, the top stays vacant until the next `set` fills it:
//! that entry rarely sinks far, whereas the last entry would sink to the bottom.

use crate::ids::Ns;

const ARITY: usize = 4;
const ABSENT: u32 = u32::MAX;

/// Bits of an entry that identify the timer.
const TIMER_BITS: u32 = 24;

/// Time, sequence number and timer, packed so that entries compare as numbers: simultaneous events are
/// ordered by when they were set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

impl Entry {
    /// Marks the vacant top. Sorts before all real entries, whose sequence numbers start at 1.
    const VACANT: Self = Self(0);
    /// Sorts after all real entries.
    const NONE: Self = Self(u128::MAX);

    /// There are fewer than 2^24 timers and, since events are limited, fewer than 2^40 sequence numbers.
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
    /// Padded with [`Entry::NONE`], so that each node has all of its children or none.
    heap: Vec<Entry>,
    /// Heap index of each timer.
    place: Vec<u32>,
    /// Entries in use, including a vacant top.
    taken: usize,
    vacant: bool,
    sequence: u64,
}

impl Timers {
    /// Creates `count` timers, none of them set.
    pub fn new(count: usize) -> Self {
        Self {
            heap: vec![Entry::NONE; 1 + count.next_multiple_of(ARITY)],
            place: vec![ABSENT; count],
            taken: 0,
            vacant: false,
            sequence: 0,
        }
    }

    /// Number of timers that are set.
    pub fn len(&self) -> usize {
        self.taken - usize::from(self.vacant)
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Expiry time of `timer`, if it is set.
    pub fn at(&self, timer: usize) -> Option<Ns> {
        self.heap.get(self.place[timer] as usize).map(|e| e.at())
    }

    /// Sets `timer` to expire at `at`; replaces an earlier setting.
    pub fn set(&mut self, timer: usize, at: Ns) {
        self.sequence += 1;
        let entry = Entry::new(at, self.sequence, timer);
        let place = self.place[timer];
        if place == ABSENT {
            if self.vacant {
                self.vacant = false;
                self.sink(0, entry);
            } else {
                self.taken += 1;
                self.rise(self.taken - 1, entry);
            }
        } else {
            let place = place as usize;
            if entry < self.heap[place] {
                self.rise(place, entry);
            } else {
                self.sink(place, entry);
            }
        }
    }

    /// Cancels `timer`, if it is set.
    pub fn cancel(&mut self, timer: usize) {
        let place = self.place[timer];
        if place != ABSENT {
            self.place[timer] = ABSENT;
            self.fill(place as usize);
        }
    }

    /// Takes the next event, unless it is after `until`.
    pub fn pop(&mut self, until: Ns) -> Option<(Ns, usize)> {
        if self.vacant {
            self.vacant = false;
            self.fill(0);
        }
        let first = self.heap[0];
        if self.taken == 0 || first.at() > until {
            return None;
        }
        self.heap[0] = Entry::VACANT;
        self.vacant = true;
        self.place[first.timer()] = ABSENT;
        Some((first.at(), first.timer()))
    }

    /// Moves the last entry to `place`, which is free.
    fn fill(&mut self, place: usize) {
        self.taken -= 1;
        let last = std::mem::replace(&mut self.heap[self.taken], Entry::NONE);
        if place == self.taken {
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
        while let Some((least, child)) = self.least_child(place)
            && child < entry
        {
            self.put(place, child);
            place = least;
        }
        self.put(place, entry);
    }

    /// The smallest child of `place`.
    fn least_child(&self, place: usize) -> Option<(usize, Entry)> {
        let first = place * ARITY + 1;
        let &[a, b, c, d] = self.heap.get(first..)?.first_chunk::<ARITY>()?;
        // As a tournament, without branches that depend on the entries.
        let left = if b < a { (first + 1, b) } else { (first, a) };
        let right = if d < c { (first + 3, d) } else { (first + 2, c) };
        Some(if right.1 < left.1 { right } else { left })
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
        let order: Vec<_> = std::iter::from_fn(|| timers.pop(7)).map(|(_, timer)| timer).collect();
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
                        let next = model.iter().min().copied().filter(|e| e.0 <= at);
                        model.retain(|e| Some(*e) != next);
                        prop_assert_eq!(timers.pop(at), next.map(|(at, _, timer)| (at, timer)));
                    }
                    _ => {
                        timers.set(timer, at);
                        model.retain(|e| e.2 != timer);
                        model.push((at, step, timer));
                    }
                }
                prop_assert_eq!(timers.len(), model.len());
                prop_assert!(model.iter().all(|e| timers.at(e.2) == Some(e.0)));
            }
            model.sort_unstable();
            for (at, _, timer) in model {
                prop_assert_eq!(timers.pop(Ns::MAX), Some((at, timer)));
            }
            prop_assert!(timers.is_empty());
        }
    }
}
