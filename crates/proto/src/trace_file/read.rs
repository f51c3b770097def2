//! Decodes blocks to events. No input can cause a panic or an endless loop.

use std::collections::BTreeMap;

use gleaner_policy::CpuId;

use super::{
    BLOCK_HEAD, BlockKind, End, Event, EventKind, Header, MAGIC, MAX_AT_NS, MAX_CPUS, MAX_PAYLOAD, PrevState,
    Task, VERSION, varint,
};

/// Why a file is not readable as a trace at all.
#[derive(Debug, thiserror::Error)]
pub enum TraceFileError {
    /// It has another format.
    #[error("this is not a trace: it does not start with `GLNTRACE`; `gleaner record` makes one")]
    NotATrace,
    /// It is a trace of another version.
    #[error(
        "this trace has version {found}, this program reads {VERSION}: record it again, or use the program that made it"
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// The header is damaged.
    #[error("the trace's header cannot be read: {0}; record it again")]
    Header(Damage),
}

impl From<Damage> for TraceFileError {
    fn from(damage: Damage) -> Self {
        Self::Header(damage)
    }
}

/// Where and why a trace is damaged. Everything before it is sound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {kind}")]
pub struct Damage {
    /// Start of the damaged block, in bytes.
    pub offset: u64,
    /// The kind of damage.
    pub kind: DamageKind,
}

/// The kind of damage to a block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DamageKind {
    /// The file ends within the block.
    #[error("the file ends in the middle of a block: it is truncated")]
    Truncated,
    /// The last block is complete, but not an end.
    #[error("the file has no end: its recorder was killed, or it is truncated")]
    NoEnd,
    /// Some bits have changed.
    #[error("the checksum does not fit: the file is corrupt")]
    Checksum,
    /// The checksum fits, but the content is invalid.
    #[error("{0}: it was not written by `gleaner record`")]
    Malformed(&'static str),
}

/// Whether `bytes` start like a trace.
pub fn is_trace(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The CRC-32 (IEEE 802.3) of a block's kind, length and payload.
pub(super) fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize()
}

/// Reads a trace, event by event, up to its end or its first damaged block.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    header: Header,
    /// Offset of the next block.
    next: usize,
    /// Decoded events of the present block that have not been returned.
    ready: std::vec::IntoIter<Event>,
    threads: u32,
    end: Option<End>,
    damage: Option<Damage>,
}

impl<'a> Reader<'a> {
    /// Opens the trace in `bytes`.
    ///
    /// # Errors
    /// It is not a trace, or its header is not readable.
    pub fn open(bytes: &'a [u8]) -> Result<Self, TraceFileError> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(TraceFileError::NotATrace)?;
        let truncated = || Damage { offset: MAGIC.len() as u64, kind: DamageKind::Truncated };
        let found = u32::from_le_bytes(*rest.first_chunk().ok_or_else(truncated)?);
        if found != VERSION {
            return Err(TraceFileError::Version { found });
        }
        let first = MAGIC.len() + size_of::<u32>();
        let damaged = |kind| Damage { offset: first as u64, kind };
        let (kind, payload) = block(&bytes[first..]).map_err(damaged)?;
        let no_header = || damaged(DamageKind::Malformed("the first block is no header"));
        let header =
            (kind == BlockKind::Header as u8).then(|| serde_json::from_slice(payload).ok()).flatten();
        Ok(Self {
            bytes,
            header: header.ok_or_else(no_header)?,
            next: first + BLOCK_HEAD + payload.len(),
            ready: Vec::new().into_iter(),
            threads: 0,
            end: None,
            damage: None,
        })
    }

    /// The header of the recording.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How the recording ended, once everything is read; `None` if it did not end normally.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The damage found, once everything is read; `None` if the file is sound.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    fn read_block(&mut self) -> Result<(), DamageKind> {
        let rest = self.bytes.get(self.next..).unwrap_or_default();
        if rest.is_empty() {
            return Err(DamageKind::NoEnd);
        }
        let (kind, payload) = block(rest)?;
        let after = self.next + BLOCK_HEAD + payload.len();
        if kind == BlockKind::Events as u8 {
            let (events, threads) = events(payload, self.threads)?;
            self.threads = threads;
            self.ready = events.into_iter();
        } else if kind == BlockKind::End as u8 {
            let end = serde_json::from_slice(payload);
            let end: End = end.map_err(|_| DamageKind::Malformed("the last block is no end"))?;
            if after != self.bytes.len() || end.elapsed_ns > MAX_AT_NS {
                return Err(DamageKind::Malformed("the end is not at the end"));
            }
            self.end = Some(end);
        } else {
            return Err(DamageKind::Malformed("there is no such kind of block"));
        }
        self.next = after;
        Ok(())
    }
}

impl Iterator for Reader<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.next() {
                return Some(event);
            }
            if self.end.is_some() || self.damage.is_some() {
                return None;
            }
            if let Err(kind) = self.read_block() {
                self.damage = Some(Damage { offset: self.next as u64, kind });
            }
        }
    }
}

/// The kind and the payload of the block at the front of `bytes`.
fn block(bytes: &[u8]) -> Result<(u8, &[u8]), DamageKind> {
    let (head, rest) = bytes.split_first_chunk::<BLOCK_HEAD>().ok_or(DamageKind::Truncated)?;
    let [kind, a, b, c, d, sum @ ..] = *head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > MAX_PAYLOAD {
        return Err(DamageKind::Checksum);
    }
    let payload = rest.get(..length).ok_or(DamageKind::Truncated)?;
    if checksum(&[kind, a, b, c, d], payload) != u32::from_le_bytes(sum) {
        return Err(DamageKind::Checksum);
    }
    Ok((kind, payload))
}

/// The events of a block, and the number of threads known after it.
fn events(mut bytes: &[u8], mut threads: u32) -> Result<(Vec<Event>, u32), DamageKind> {
    let mut events = Vec::new();
    let mut on = BTreeMap::new();
    let mut at_ns = 0_u64;
    while !bytes.is_empty() {
        let event = varint::take(&mut bytes)
            .and_then(|later| at_ns.checked_add(later))
            .filter(|at| *at <= MAX_AT_NS)
            .and_then(|at| Some(Event { at_ns: at, what: what(&mut bytes, threads, &mut on)? }))
            .ok_or(DamageKind::Malformed("an event makes no sense"))?;
        at_ns = event.at_ns;
        threads += u32::from(matches!(event.what, EventKind::Thread { .. }));
        events.push(event);
    }
    Ok((events, threads))
}

fn what(bytes: &mut &[u8], threads: u32, on: &mut BTreeMap<CpuId, Task>) -> Option<EventKind> {
    let (tag, rest) = bytes.split_first()?;
    *bytes = rest;
    let (kind, flags) = (tag & 0x07, tag >> 3);
    if flags != 0 && (kind != 0 || flags > 0x07) {
        return None;
    }
    Some(match kind {
        0 => {
            let cpu = take_cpu(bytes)?;
            let from = if flags & 0x04 == 0 { *on.get(&cpu)? } else { take_task(bytes, threads)? };
            let to = take_task(bytes, threads)?;
            on.insert(cpu, to);
            EventKind::Switch { cpu, from, prev_state: prev_state(flags & 0x03), to }
        }
        1 => EventKind::Wake {
            cpu: take_cpu(bytes)?,
            waker: take_task(bytes, threads)?,
            wakee: take_task(bytes, threads)?,
        },
        2 => EventKind::Thread { tid: take_u32(bytes)?, process: take_u32(bytes)?, name: take_name(bytes)? },
        3 => {
            let thread = take_u32(bytes).filter(|thread| *thread < threads)?;
            EventKind::Renamed { thread, name: take_name(bytes)? }
        }
        4 => EventKind::Lost { events: varint::take(bytes)? },
        _ => return None,
    })
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    u32::try_from(varint::take(bytes)?).ok()
}

fn take_cpu(bytes: &mut &[u8]) -> Option<CpuId> {
    take_u32(bytes).filter(|cpu| *cpu < MAX_CPUS).map(CpuId)
}

fn take_task(bytes: &mut &[u8], threads: u32) -> Option<Task> {
    match take_u32(bytes)? {
        0 => Some(Task::Nobody),
        1 => Some(Task::Other),
        code => (code - 2 < threads).then_some(Task::Thread(code - 2)),
    }
}

fn take_name(bytes: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(varint::take(bytes)?).ok()?;
    let (name, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    String::from_utf8(name.to_vec()).ok()
}

fn prev_state(bits: u8) -> PrevState {
    match bits {
        0 => PrevState::Runnable,
        1 => PrevState::Blocked,
        2 => PrevState::BlockedIo,
        _ => PrevState::Exited,
    }
}
