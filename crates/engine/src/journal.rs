//! Writing the journal: decisions always, observations as they explain them.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use gleaner_policy::{Event, Observation, Setting};
use gleaner_proto::journal::Record;

/// Between two observations that decided nothing.
const QUIET: Duration = Duration::from_millis(100);
/// A journal that nobody asked for holds at most this many bytes of observations: `/run` is memory.
const BOUND: u64 = 8 << 20;

/// A journal in the making.
#[derive(Debug)]
pub struct Journal {
    out: Option<BufWriter<File>>,
    bound: u64,
    written: u64,
    last_observation: Option<Duration>,
}

impl Journal {
    /// A journal in the file at `path`, which is replaced; `bounded` for one that nobody asked for.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path, bounded: bool) -> io::Result<Self> {
        let out = BufWriter::new(File::create(path)?);
        let bound = if bounded { BOUND } else { u64::MAX };
        Ok(Self { out: Some(out), bound, written: 0, last_observation: None })
    }

    /// A journal that keeps nothing.
    pub fn nowhere() -> Self {
        Self { out: None, bound: 0, written: 0, last_observation: None }
    }

    /// Records one step: the observation if it led to a decision or is due, and the decisions.
    pub fn step(&mut self, in_force: &Setting, o: &Observation, events: &[Event]) {
        let due = self.last_observation.is_none_or(|last| o.at.saturating_sub(last) >= QUIET);
        let told = due || !events.is_empty();
        if self.written < self.bound && told {
            self.last_observation = Some(o.at);
            self.write(&Record::Observation { in_force: in_force.clone(), observation: Box::new(o.clone()) });
        }
        for event in events {
            self.write(&Record::Decision { at: o.at, event: event.clone() });
        }
        if told {
            self.flush();
        }
    }

    /// Records something that the engine met.
    pub fn note(&mut self, at: Duration, text: impl Into<String>) {
        self.write(&Record::Note { at, text: text.into() });
    }

    /// Writes one record. A journal that fails (a full disk) is given up: the workload matters more.
    pub fn write(&mut self, record: &Record) {
        let Some(out) = &mut self.out else { return };
        let result = serde_json::to_vec(record).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.written += line.len() as u64;
            out.write_all(&line)
        });
        if let Err(error) = result {
            // Where that cannot be said either, nobody is left who could be told.
            let _ = writeln!(io::stderr(), "gleaner: the journal ends here: {error}");
            self.out = None;
        }
    }

    /// Hands everything to the kernel, so that `gleaner why` and `gleaner top` can read it now.
    pub fn flush(&mut self) {
        if let Some(out) = &mut self.out {
            // A failure shows at the next write.
            let _ = out.flush();
        }
    }
}
