//! Maps TIDs, which the kernel reuses, to a trace's thread numbers, which are unique.

use std::collections::BTreeMap;

use super::{EventKind, Task};

/// Numbers of the living threads, by TID.
#[derive(Debug, Default)]
pub struct ThreadTable {
    known: BTreeMap<u32, u32>,
    next: u32,
}

impl ThreadTable {
    /// The event for a thread that is named `name` from now on.
    pub fn named(&mut self, tid: u32, process: u32, name: String) -> EventKind {
        if let Some(thread) = self.known.get(&tid) {
            return EventKind::Renamed { thread: *thread, name };
        }
        self.known.insert(tid, self.next);
        self.next += 1;
        EventKind::Thread { tid, process, name }
    }

    /// The thread `tid`. If its introduction was lost, it is introduced now, without name and process, by an
    /// event passed to `introduce`.
    pub fn thread(&mut self, tid: u32, introduce: impl FnOnce(EventKind)) -> Task {
        if !self.known.contains_key(&tid) {
            introduce(self.named(tid, 0, String::new()));
        }
        Task::Thread(self.known[&tid])
    }

    /// The thread has ended: its TID can be reused from now on.
    pub fn ended(&mut self, tid: u32) {
        self.known.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again_is_another_thread() {
        let mut table = ThreadTable::default();
        let name = |name: &str| name.to_owned();
        assert_eq!(table.named(7, 7, name("a")), EventKind::Thread { tid: 7, process: 7, name: name("a") });
        assert_eq!(table.named(7, 7, name("b")), EventKind::Renamed { thread: 0, name: name("b") });
        table.ended(7);
        let mut introduced = Vec::new();
        assert_eq!(table.thread(7, |what| introduced.push(what)), Task::Thread(1));
        assert_eq!(introduced, [EventKind::Thread { tid: 7, process: 0, name: String::new() }]);
        assert_eq!(table.thread(7, |what| introduced.push(what)), Task::Thread(1));
        assert_eq!(introduced.len(), 1);
    }
}
