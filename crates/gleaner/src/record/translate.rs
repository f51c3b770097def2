//! Translates events from the kernel into those of a trace file.

use std::io;
use std::time::Duration;

use gleaner_proto::trace_file::{
    End, Event, EventKind, Header, PrevState, Task, ThreadTable, WriteError, Writer,
};
use gleaner_trace::{Batch, RecordedEvent, RecordedKind, RecordedTask};

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
        for event in batch.events {
            self.event(event)?;
        }
        if batch.lost > 0 { self.put(EventKind::Lost { events: batch.lost }) } else { Ok(()) }
    }

    pub(super) fn finish(self, elapsed: Duration) -> Result<(End, u32), WriteError> {
        let (_, end) = self.writer.finish(ns(elapsed))?;
        Ok((end, self.threads))
    }

    fn event(&mut self, event: RecordedEvent) -> Result<(), WriteError> {
        self.at_ns = ns(event.at);
        match event.what {
            RecordedKind::Name { tid, process, name } => {
                let what = self.table.named(tid, process, name);
                self.put(what)
            }
            RecordedKind::Wake { cpu, waker, wakee } => {
                let (by, whom) = (self.task(waker)?, self.task(wakee)?);
                self.put(EventKind::Wake { cpu, waker: by, wakee: whom })
            }
            RecordedKind::Switch { cpu, from, prev_state, to } => {
                let (before, after) = (self.task(from)?, self.task(to)?);
                self.put(EventKind::Switch { cpu, from: before, prev_state, to: after })?;
                if let (RecordedTask::Thread(tid), PrevState::Exited) = (from, prev_state) {
                    self.table.ended(tid);
                }
                Ok(())
            }
        }
    }

    fn task(&mut self, recorded: RecordedTask) -> Result<Task, WriteError> {
        let tid = match recorded {
            RecordedTask::Nobody => return Ok(Task::Nobody),
            RecordedTask::Other => return Ok(Task::Other),
            RecordedTask::Thread(tid) => tid,
        };
        let mut introduction = None;
        let task = self.table.thread(tid, |what| introduction = Some(what));
        introduction.map_or(Ok(()), |what| self.put(what))?;
        Ok(task)
    }

    fn put(&mut self, what: EventKind) -> Result<(), WriteError> {
        self.threads += u32::from(matches!(what, EventKind::Thread { .. }));
        self.writer.event(&Event { at_ns: self.at_ns, what })
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
