//! The events sent by `src/bpf/record.bpf.c`.

use std::time::Duration;

use gleaner_policy::CpuId;
use gleaner_proto::trace_file::Left;

/// Sizes of `struct record` and `struct record_name` in `src/bpf/record.h`.
const RECORD_BYTES: usize = 24;
const COMM_BYTES: usize = 16;
const TID_NOBODY: u32 = 0;
const TID_OTHER: u32 = u32::MAX;

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Time since the start of the recording.
    pub at: Duration,
    /// What happened.
    pub what: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// A context switch.
    Switch {
        /// The vCPU that switched.
        cpu: CpuId,
        /// The previous thread; none: it was idle.
        from: Someone,
        /// How the previous thread left.
        left: Left,
        /// The next thread.
        to: Someone,
    },
    /// A thread was woken or created.
    Wake {
        /// The waker's vCPU.
        cpu: CpuId,
        /// The waker; none: an interrupt of an idle vCPU.
        waker: Someone,
        /// The wakee.
        wakee: Someone,
    },
    /// A thread is new or was renamed.
    Name {
        /// The thread's TID.
        tid: u32,
        /// The process's PID.
        process: u32,
        /// The name, at most 16 bytes; what is not UTF-8 is replaced.
        name: String,
    },
}

/// One side of a switch or wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Someone {
    /// No thread.
    Nobody,
    /// A thread outside the scope.
    Other,
    /// A thread in the scope, by TID.
    Thread(u32),
}

/// Parses one event; `None` if it is malformed.
pub(super) fn parse(bytes: &[u8]) -> Option<Seen> {
    let (head, name) = bytes.split_first_chunk::<RECORD_BYTES>()?;
    let word = |at: usize| head[at..].first_chunk().map(|b| u32::from_ne_bytes(*b));
    let half = |at: usize| head[at..].first_chunk().map(|b| u16::from_ne_bytes(*b));
    let at = Duration::from_nanos(u64::from_ne_bytes(*head.first_chunk()?));
    let (kind, left, cpu) = (half(8)?, half(10)?, CpuId(word(12)?));
    let (from, to) = (word(16)?, word(20)?);
    let what = match kind {
        0 => EventKind::Switch { cpu, from: someone(from), left: left_as(left)?, to: someone(to) },
        1 => EventKind::Wake { cpu, waker: someone(from), wakee: someone(to) },
        2 => EventKind::Name { tid: from, process: to, name: text(name.first_chunk::<COMM_BYTES>()?) },
        _ => return None,
    };
    Some(Seen { at, what })
}

fn someone(tid: u32) -> Someone {
    match tid {
        TID_NOBODY => Someone::Nobody,
        TID_OTHER => Someone::Other,
        tid => Someone::Thread(tid),
    }
}

fn left_as(number: u16) -> Option<Left> {
    Some(match number {
        0 => Left::Runnable,
        1 => Left::Blocked,
        2 => Left::BlockedIo,
        3 => Left::Exited,
        _ => return None,
    })
}

fn text(comm: &[u8]) -> String {
    let end = comm.iter().position(|b| *b == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u16, left: u16, [cpu, from, to]: [u32; 3]) -> Vec<u8> {
        let mut bytes = 9_u64.to_ne_bytes().to_vec();
        bytes.extend([kind, left].iter().flat_map(|n| n.to_ne_bytes()));
        bytes.extend([cpu, from, to].iter().flat_map(|n| n.to_ne_bytes()));
        bytes
    }

    #[test]
    fn an_event_is_read_field_by_field() {
        let switch = parse(&record(0, 2, [3, 70, 0])).unwrap();
        assert_eq!(switch.at, Duration::from_nanos(9));
        let (from, to) = (Someone::Thread(70), Someone::Nobody);
        assert_eq!(switch.what, EventKind::Switch { cpu: CpuId(3), from, left: Left::BlockedIo, to });
        let wake = parse(&record(1, 0, [1, u32::MAX, 8])).unwrap();
        let (by, whom) = (Someone::Other, Someone::Thread(8));
        assert_eq!(wake.what, EventKind::Wake { cpu: CpuId(1), waker: by, wakee: whom });
        let mut name = record(2, 0, [0, 8, 7]);
        assert_eq!(parse(&name), None);
        name.extend(b"worker\0 old text");
        let name = parse(&name).unwrap().what;
        assert_eq!(name, EventKind::Name { tid: 8, process: 7, name: "worker".to_owned() });
        assert_eq!(parse(&record(0, 9, [0; 3])), None);
        assert_eq!(parse(&[0; 23]), None);
    }
}
