//! The trace of a workload's pattern: who ran where, who left in which way, who woke whom. Written by `gleaner record`,
//! read by `gleaner replay`; `docs/trace-format.md` describes every byte.
//!
//! Reading and writing are pure. A file is a row of blocks, each with its checksum: what comes before a damaged one is
//! still read, and the damage is told with its offset.

mod follow;
mod read;
mod thread_table;
mod varint;
mod write;

#[cfg(test)]
mod tests;

use gleaner_policy::{CpuId, CpuSet, PolicyConfig};
use serde::{Deserialize, Serialize};

pub use follow::{Follow, Pattern, PatternEdge, PatternThread};
pub use read::{Damage, DamageKind, Reader, TraceFileError, is_trace};
pub use thread_table::ThreadTable;
pub use write::{WriteError, Writer};

/// The version of the format that this crate reads and writes.
pub const VERSION: u32 = 1;
/// The first bytes of every trace; the version follows, as four bytes.
pub const MAGIC: [u8; 8] = *b"GLNTRACE";

/// No payload is larger: what says so is damaged.
const MAX_PAYLOAD: usize = 1 << 20;
/// Bytes of a block before its payload: kind, length, checksum.
const BLOCK_HEAD: usize = 9;
/// No vCPU has a higher number: the kernel's own limit (`NR_CPUS` with MAXSMP).
const MAX_CPUS: u32 = 8192;
/// No event is later: 52 days, in nanoseconds.
const MAX_AT_NS: u64 = 1 << 52;

/// What a block holds.
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
    /// The vCPUs that were online.
    pub vcpus: CpuSet,
    /// What Gleaner's policy is built from on that machine.
    pub config: Box<PolicyConfig>,
    /// What was not known there, as sentences.
    pub limits: Vec<String>,
}

/// The last block of a recording that ended in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How long was recorded, in nanoseconds.
    pub elapsed_ns: u64,
    /// Events in the file.
    pub events: u64,
    /// Events that are not: they came faster than they could be written.
    pub lost: u64,
    /// Whether it ended because the file had reached its largest size.
    pub full: bool,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the recording began; never less than those of the event before.
    pub at_ns: u64,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A vCPU went from one thread to another.
    Switch {
        /// The vCPU.
        cpu: CpuId,
        /// Who had it.
        from: Who,
        /// How that one left.
        left: Left,
        /// Who has it from now on.
        to: Who,
    },
    /// A thread was woken, or created.
    Wake {
        /// The vCPU on which that was done.
        cpu: CpuId,
        /// By whom; [`Who::Nobody`]: by an interrupt of an idle vCPU.
        waker: Who,
        /// Who can run now.
        wakee: Who,
    },
    /// A thread is spoken of from now on; its number is that of such events before it.
    Thread {
        /// The kernel's number for it.
        tid: u32,
        /// Its process.
        process: u32,
        /// Its name.
        name: String,
    },
    /// A thread has another name.
    Renamed {
        /// Which one.
        thread: u32,
        /// Its new name.
        name: String,
    },
    /// Events are missing here.
    Lost {
        /// How many.
        events: u64,
    },
}

/// Who has a vCPU, or wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// No thread: the vCPU is idle.
    Nobody,
    /// A thread that is no part of the workload.
    Other,
    /// The thread that the [`What::Thread`] event of this number introduced, counted from 0.
    Thread(u32),
}

/// How a thread left its vCPU. It means nothing for other threads and idle vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// It could go on, and waits for a vCPU.
    Runnable,
    /// It waits for something.
    Blocked,
    /// It waits for a device.
    BlockedIo,
    /// It has ended.
    ForGood,
}
