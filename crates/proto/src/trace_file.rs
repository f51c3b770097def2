//! The trace of a workload's scheduling: which thread ran where, how it left the vCPU, and which thread woke
//! which. Written by `gleaner record`, read by `gleaner replay`; `docs/trace-format.md` describes every byte.
//!
//! Reading and writing are pure. A file is a sequence of blocks with checksums: everything before a damaged
//! block can be read, and the damage is reported with its offset.

mod read;
mod reconstruct;
mod thread_table;
mod varint;
mod write;

#[cfg(test)]
mod tests;

use gleaner_policy::{CpuId, CpuSet, PolicyConfig};
use serde::{Deserialize, Serialize};

pub use read::{Damage, DamageKind, Reader, TraceFileError, is_trace};
pub use reconstruct::{Pattern, PatternEdge, PatternThread, Reconstruction};
pub use thread_table::ThreadTable;
pub use write::{WriteError, Writer};

/// The version of the format that this crate reads and writes.
pub const VERSION: u32 = 1;
/// The first bytes of every trace; the version follows, as four bytes.
pub const MAGIC: [u8; 8] = *b"GLNTRACE";

/// The largest valid payload, in bytes.
const MAX_PAYLOAD: usize = 1 << 20;
/// Bytes of a block before its payload: kind, length, checksum.
const BLOCK_HEAD: usize = 9;
/// The exclusive upper bound of vCPU numbers: the kernel's own limit (`NR_CPUS` with MAXSMP).
const MAX_CPUS: u32 = 8192;
/// The latest valid event time: 52 days, in nanoseconds.
const MAX_AT_NS: u64 = 1 << 52;

/// The type of a block's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Header = 1,
    Events = 2,
    End = 3,
}

/// The first block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The command, or what was recorded.
    pub workload: String,
    /// Online vCPUs.
    pub vcpus: CpuSet,
    /// The policy's configuration on that machine.
    pub config: Box<PolicyConfig>,
    /// What was not known there, as sentences.
    pub limits: Vec<String>,
}

/// The last block of a recording that ended normally.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Duration of the recording, in nanoseconds.
    pub elapsed_ns: u64,
    /// Number of events in the file.
    pub events: u64,
    /// Number of events lost because they came faster than they could be written.
    pub lost: u64,
    /// Whether it ended because the file reached its maximum size.
    pub full: bool,
}

/// A timestamped scheduling event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the start of the recording; never decreases.
    pub at_ns: u64,
    /// The event.
    pub what: EventKind,
}

/// Kinds of scheduling events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// A context switch of a vCPU.
    Switch {
        /// The vCPU that switched.
        cpu: CpuId,
        /// The previous task.
        from: Task,
        /// How the previous task left the vCPU.
        prev_state: PrevState,
        /// The next task.
        to: Task,
    },
    /// A thread was woken, or created.
    Wake {
        /// The vCPU on which the wake-up was made.
        cpu: CpuId,
        /// The waker; [`Task::Nobody`] for an interrupt of an idle vCPU.
        waker: Task,
        /// The woken thread.
        wakee: Task,
    },
    /// Introduces a thread; its number is the count of earlier such events.
    Thread {
        /// The kernel's TID.
        tid: u32,
        /// PID of its process.
        process: u32,
        /// The thread's name.
        name: String,
    },
    /// A thread was renamed.
    Renamed {
        /// Number of the thread.
        thread: u32,
        /// Its new name.
        name: String,
    },
    /// Events were lost here.
    Lost {
        /// Number of events lost.
        events: u64,
    },
}

/// A task: what runs on a vCPU, or wakes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// No thread: the vCPU is idle.
    Nobody,
    /// A thread outside the workload.
    Other,
    /// The thread introduced by the [`EventKind::Thread`] event of this number, from 0.
    Thread(u32),
}

/// How a thread left its vCPU. Meaningless for other threads and idle vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrevState {
    /// Still runnable: it was preempted, or yielded.
    Runnable,
    /// Blocked, but not on I/O.
    Blocked,
    /// Blocked on I/O.
    BlockedIo,
    /// Exited.
    Exited,
}
