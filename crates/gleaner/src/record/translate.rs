//! Translates events from the kernel into those of a trace file.

use std::io;
use std::time::Duration;

use gleaner_proto::trace_file::{End, Event, Header, Left, Task, ThreadTable, What, WriteError, Writer};
use gleaner_trace::{Batch, EventKind, Seen, Someone};

pub(super) struct Translator<W> {
    writer: Writer<W>,
    table: ThreadTable,
    threads: u32,
    at_ns: u64,
}

impl<W: io::Write> Translator<W> {
    pub(super) fn new(out: W, header: &Header, max: u64) -> Result<Self, WriteError> {
        Ok(Self {
            writer: Writer::new(out, header, max)?,
            table: ThreadTable::default(),
            threads: 0,
            at_ns: 0,
        })
    }

    pub(super) fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    pub(super) fn write(&mut self, batch: Batch) -> Result<(), WriteError> {
        for seen in batch.events {
            self.seen(seen)?;
        }
        if batch.lost > 0 { self.put(What::Lost { events: batch.lost }) } else { Ok(()) }
    }

    pub(super) fn finish(self, elapsed: Duration) -> Result<(End, u32), WriteError> {
        let (_, end) = self.writer.finish(ns(elapsed))?;
        Ok((end, self.threads))
    }

    fn seen(&mut self, seen: Seen) -> Result<(), WriteError> {
        self.at_ns = ns(seen.at);
        match seen.what {
            EventKind::Name { tid, process, name } => {
                let what = self.table.named(tid, process, name);
                self.put(what)
            }
            EventKind::Wake { cpu, waker, wakee } => {
                let (by, whom) = (self.task(waker)?, self.task(wakee)?);
                self.put(What::Wake { cpu, waker: by, wakee: whom })
            }
            EventKind::Switch { cpu, from, left, to } => {
                let (before, after) = (self.task(from)?, self.task(to)?);
                self.put(What::Switch { cpu, from: before, left, to: after })?;
                if let (Someone::Thread(tid), Left::Exited) = (from, left) {
                    self.table.ended(tid);
                }
                Ok(())
            }
        }
    }

    fn task(&mut self, someone: Someone) -> Result<Task, WriteError> {
        let tid = match someone {
            Someone::Nobody => return Ok(Task::Nobody),
            Someone::Other => return Ok(Task::Other),
            Someone::Thread(tid) => tid,
        };
        let mut introduction = None;
        let task = self.table.thread(tid, |what| introduction = Some(what));
        introduction.map_or(Ok(()), |what| self.put(what))?;
        Ok(task)
    }

    fn put(&mut self, what: What) -> Result<(), WriteError> {
        self.threads += u32::from(matches!(what, What::Thread { .. }));
        self.writer.event(&Event { at_ns: self.at_ns, what })
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
