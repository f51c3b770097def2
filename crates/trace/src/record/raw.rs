//! The events sent by `src/bpf/record.bpf.c`.

use std::time::Duration;

use gleaner_policy::CpuId;
use gleaner_proto::trace_file::PrevState;

/// Sizes of `struct record` and `struct record_name` in `src/bpf/record.h`.
const RECORD_BYTES: usize = 24;
const COMM_BYTES: usize = 16;
const TID_NOBODY: u32 = 0;
const TID_OTHER: u32 = u32::MAX;

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Time since the start of the recording.
    pub at: Duration,
    /// What happened.
    pub what: RecordedKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedKind {
    /// A context switch.
    Switch {
        /// The vCPU that switched.
        cpu: CpuId,
        /// The previous thread; none: it was idle.
        from: RecordedTask,
        /// How the previous thread left.
        prev_state: PrevState,
        /// The next thread.
        to: RecordedTask,
    },
    /// A thread was woken or created.
    Wake {
        /// The waker's vCPU.
        cpu: CpuId,
        /// The waker; none: an interrupt of an idle vCPU.
        waker: RecordedTask,
        /// The wakee.
        wakee: RecordedTask,
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
pub enum RecordedTask {
    /// No thread.
    Nobody,
    /// A thread outside the scope.
    Other,
    /// A thread in the scope, by TID.
    Thread(u32),
}

/// Parses one event; `None` if it is malformed.
pub(super) fn parse(bytes: &[u8]) -> Option<RecordedEvent> {
    let (head, name) = bytes.split_first_chunk::<RECORD_BYTES>()?;
    let word = |at: usize| head[at..].first_chunk().map(|b| u32::from_ne_bytes(*b));
    let half = |at: usize| head[at..].first_chunk().map(|b| u16::from_ne_bytes(*b));
    let at = Duration::from_nanos(u64::from_ne_bytes(*head.first_chunk()?));
    let (kind, prev_state, cpu) = (half(8)?, half(10)?, CpuId(word(12)?));
    let (from, to) = (word(16)?, word(20)?);
    let what = match kind {
        0 => RecordedKind::Switch {
            cpu,
            from: task(from),
            prev_state: parse_prev_state(prev_state)?,
            to: task(to),
        },
        1 => RecordedKind::Wake { cpu, waker: task(from), wakee: task(to) },
        2 => RecordedKind::Name { tid: from, process: to, name: text(name.first_chunk::<COMM_BYTES>()?) },
        _ => return None,
    };
    Some(RecordedEvent { at, what })
}

fn task(tid: u32) -> RecordedTask {
    match tid {
        TID_NOBODY => RecordedTask::Nobody,
        TID_OTHER => RecordedTask::Other,
        tid => RecordedTask::Thread(tid),
    }
}

fn parse_prev_state(number: u16) -> Option<PrevState> {
    Some(match number {
        0 => PrevState::Runnable,
        1 => PrevState::Blocked,
        2 => PrevState::BlockedIo,
        3 => PrevState::Exited,
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

    fn record(kind: u16, prev_state: u16, [cpu, from, to]: [u32; 3]) -> Vec<u8> {
        let mut bytes = 9_u64.to_ne_bytes().to_vec();
        bytes.extend([kind, prev_state].iter().flat_map(|n| n.to_ne_bytes()));
        bytes.extend([cpu, from, to].iter().flat_map(|n| n.to_ne_bytes()));
        bytes
    }

    #[test]
    fn an_event_is_read_field_by_field() {
        let switch = parse(&record(0, 2, [3, 70, 0])).unwrap();
        assert_eq!(switch.at, Duration::from_nanos(9));
        let (from, to) = (RecordedTask::Thread(70), RecordedTask::Nobody);
        assert_eq!(
            switch.what,
            RecordedKind::Switch { cpu: CpuId(3), from, prev_state: PrevState::BlockedIo, to }
        );
        let wake = parse(&record(1, 0, [1, u32::MAX, 8])).unwrap();
        let (by, whom) = (RecordedTask::Other, RecordedTask::Thread(8));
        assert_eq!(wake.what, RecordedKind::Wake { cpu: CpuId(1), waker: by, wakee: whom });
        let mut name = record(2, 0, [0, 8, 7]);
        assert_eq!(parse(&name), None);
        name.extend(b"worker\0 old text");
        let name = parse(&name).unwrap().what;
        assert_eq!(name, RecordedKind::Name { tid: 8, process: 7, name: "worker".to_owned() });
        assert_eq!(parse(&record(0, 9, [0; 3])), None);
        assert_eq!(parse(&[0; 23]), None);
    }
}
