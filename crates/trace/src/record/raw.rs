//! The events sent by `src/bpf/record.bpf.c`.

use std::time::Duration;

use gleaner_policy::CpuId;
use gleaner_proto::trace_file::PrevState;

use crate::plain::from_bytes;
use crate::record_skeleton::types::{record, record_kind, record_name, record_tid};

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
    let record { at_ns, kind, cpu, from, to } = from_bytes::<record>(bytes)?;
    let cpu = CpuId(cpu);
    let switch = |prev_state| RecordedKind::Switch { cpu, from: task(from), prev_state, to: task(to) };
    let what = match kind {
        record_kind::SWITCH_RUNNABLE => switch(PrevState::Runnable),
        record_kind::SWITCH_BLOCKED => switch(PrevState::Blocked),
        record_kind::SWITCH_BLOCKED_IO => switch(PrevState::BlockedIo),
        record_kind::SWITCH_EXITED => switch(PrevState::Exited),
        record_kind::RECORD_WAKE => RecordedKind::Wake { cpu, waker: task(from), wakee: task(to) },
        record_kind::RECORD_NAME => {
            let name = text(&from_bytes::<record_name>(bytes)?.comm);
            RecordedKind::Name { tid: from.0, process: to.0, name }
        }
        _ => return None,
    };
    Some(RecordedEvent { at: Duration::from_nanos(at_ns), what })
}

fn task(tid: record_tid) -> RecordedTask {
    match tid {
        record_tid::TID_NOBODY => RecordedTask::Nobody,
        record_tid::TID_OTHER => RecordedTask::Other,
        record_tid(tid) => RecordedTask::Thread(tid),
    }
}

fn text(comm: &[u8]) -> String {
    let end = comm.iter().position(|b| *b == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::as_bytes;

    #[test]
    fn malformed_events_are_no_events() {
        let (from, to) = (record_tid(8), record_tid(7));
        let record = record { at_ns: 9, kind: record_kind::RECORD_NAME, cpu: 0, from, to };
        assert_eq!(parse(as_bytes(&record)), None, "it has no name");
        let unknown = record_kind(99);
        assert_eq!(parse(as_bytes(&record { kind: unknown, ..record })), None);
        let name = record_name { record, comm: *b"worker\0 old text" };
        let what = RecordedKind::Name { tid: 8, process: 7, name: "worker".to_owned() };
        assert_eq!(parse(as_bytes(&name)), Some(RecordedEvent { at: Duration::from_nanos(9), what }));
    }
}
