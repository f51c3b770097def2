//! Encodes events to blocks.

use std::collections::BTreeMap;
use std::io;

use gleaner_policy::CpuId;

use super::{BLOCK_HEAD, BlockKind, End, Event, EventKind, Header, MAGIC, PrevState, Task, VERSION, varint};

/// The size at which a block is written; far below the reader's limit.
const FULL_BLOCK: usize = 64 << 10;
/// Reserved for the end block, which is written even to a full file.
const END_RESERVE: u64 = 256;

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file cannot be written.
    #[error("cannot write the trace: {0}; make room, or name another file")]
    Io(io::Error),
    /// The size limit is too small for the header.
    #[error("the trace is limited to {max} bytes, which its header alone exceeds: allow more")]
    NoRoom {
        /// The size limit, in bytes.
        max: u64,
    },
    /// The header cannot be serialised.
    #[error("cannot write the trace's header: {0}")]
    Json(serde_json::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<serde_json::Error> for WriteError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

/// Writes one trace.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    max: u64,
    written: u64,
    /// Payload of the present block.
    payload: Vec<u8>,
    in_block: u64,
    /// Time of the latest event.
    at_ns: u64,
    /// The task on each vCPU, as known from this block alone.
    on: BTreeMap<CpuId, Task>,
    events: u64,
    lost: u64,
    full: bool,
}

impl<W: io::Write> Writer<W> {
    /// Starts a trace of at most `max` bytes.
    ///
    /// # Errors
    /// The header cannot be written, or does not fit.
    pub fn new(mut out: W, header: &Header, max: u64) -> Result<Self, WriteError> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(block(BlockKind::Header, &serde_json::to_vec(header)?));
        let written = bytes.len() as u64;
        if written + END_RESERVE > max {
            return Err(WriteError::NoRoom { max });
        }
        out.write_all(&bytes)?;
        Ok(Self {
            out,
            max,
            written,
            payload: Vec::new(),
            in_block: 0,
            at_ns: 0,
            on: BTreeMap::new(),
            events: 0,
            lost: 0,
            full: false,
        })
    }

    /// Adds an event, unless the file is full. If time goes backwards, the previous event's time is used.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        if self.full {
            return Ok(());
        }
        if let EventKind::Lost { events } = &event.what {
            self.lost += events;
        }
        let at_ns = event.at_ns.max(self.at_ns);
        varint::put(&mut self.payload, at_ns - if self.in_block == 0 { 0 } else { self.at_ns });
        self.at_ns = at_ns;
        self.in_block += 1;
        encode(&mut self.payload, &event.what, &mut self.on);
        if self.payload.len() >= FULL_BLOCK { self.end_block() } else { Ok(()) }
    }

    /// Whether the file has reached its maximum size.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Ends the trace, `elapsed_ns` after its start.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, elapsed_ns: u64) -> Result<(W, End), WriteError> {
        self.end_block()?;
        let end = End { elapsed_ns, events: self.events, lost: self.lost, full: self.full };
        let bytes = block(BlockKind::End, &serde_json::to_vec(&end)?);
        self.out.write_all(&bytes)?;
        self.out.flush()?;
        Ok((self.out, end))
    }

    fn end_block(&mut self) -> Result<(), WriteError> {
        if self.in_block == 0 {
            return Ok(());
        }
        let bytes = block(BlockKind::Events, &self.payload);
        if self.written + bytes.len() as u64 + END_RESERVE > self.max {
            self.full = true;
        } else {
            self.out.write_all(&bytes)?;
            self.written += bytes.len() as u64;
            self.events += self.in_block;
        }
        self.payload.clear();
        self.in_block = 0;
        self.on.clear();
        Ok(())
    }
}

/// A complete block. Our payloads are far below 4 GiB.
fn block(kind: BlockKind, payload: &[u8]) -> Vec<u8> {
    let mut head = vec![kind as u8];
    head.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    let checksum = super::read::checksum(&head, payload);
    let mut bytes = Vec::with_capacity(BLOCK_HEAD + payload.len());
    bytes.extend(head);
    bytes.extend(checksum.to_le_bytes());
    bytes.extend(payload);
    bytes
}

fn encode(out: &mut Vec<u8>, what: &EventKind, on: &mut BTreeMap<CpuId, Task>) {
    match what {
        EventKind::Switch { cpu, from, prev_state, to } => {
            let expected = on.insert(*cpu, *to) == Some(*from);
            out.push(prev_state_code(*prev_state) << 3 | u8::from(!expected) << 5);
            varint::put(out, u64::from(cpu.0));
            if !expected {
                varint::put(out, task_code(*from));
            }
            varint::put(out, task_code(*to));
        }
        EventKind::Wake { cpu, waker, wakee } => {
            out.push(1);
            varint::put(out, u64::from(cpu.0));
            varint::put(out, task_code(*waker));
            varint::put(out, task_code(*wakee));
        }
        EventKind::Thread { tid, process, name } => {
            out.push(2);
            varint::put(out, u64::from(*tid));
            varint::put(out, u64::from(*process));
            put_name(out, name);
        }
        EventKind::Renamed { thread, name } => {
            out.push(3);
            varint::put(out, u64::from(*thread));
            put_name(out, name);
        }
        EventKind::Lost { events } => {
            out.push(4);
            varint::put(out, *events);
        }
    }
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    varint::put(out, name.len() as u64);
    out.extend(name.as_bytes());
}

fn task_code(task: Task) -> u64 {
    match task {
        Task::Nobody => 0,
        Task::Other => 1,
        Task::Thread(number) => u64::from(number) + 2,
    }
}

fn prev_state_code(prev_state: PrevState) -> u8 {
    match prev_state {
        PrevState::Runnable => 0,
        PrevState::Blocked => 1,
        PrevState::BlockedIo => 2,
        PrevState::Exited => 3,
    }
}
