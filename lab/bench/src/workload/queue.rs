//! A bounded queue between threads: a mutex and a condition variable for either side.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// First in, first out; any number of threads on either side.
pub(super) struct Queue<T> {
    capacity: usize,
    state: Mutex<State<T>>,
    not_empty: Condvar,
    not_full: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let state = State { items: VecDeque::with_capacity(capacity), closed: false };
        Self { capacity, state: Mutex::new(state), not_empty: Condvar::new(), not_full: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for space and appends; returns false if the queue was closed.
    pub(super) fn push(&self, item: T) -> bool {
        let full = |state: &mut State<T>| state.items.len() >= self.capacity && !state.closed;
        let mut state = self.not_full.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return false;
        }
        state.items.push_back(item);
        drop(state);
        self.not_empty.notify_one();
        true
    }

    /// Waits for an item and takes it; `None` once the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<T> {
        let empty = |state: &mut State<T>| state.items.is_empty() && !state.closed;
        let mut state = self.not_empty.wait_while(self.lock(), empty).unwrap_or_else(PoisonError::into_inner);
        let item = state.items.pop_front();
        drop(state);
        self.not_full.notify_one();
        item
    }

    /// Rejects further items; existing ones can still be popped.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.not_empty.notify_all();
        self.not_full.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_queue_gives_what_it_has_and_takes_no_more() {
        let queue = Queue::new(2);
        assert!(queue.push(1));
        queue.close();
        assert!(!queue.push(2));
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.pop(), None);
    }
}
