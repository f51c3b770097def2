//! Recorded traces as programs: replays the threads seen by `gleaner record` as computation and dependencies.
//!
//! A wait that was ended by another thread of the workload ends in the simulation when *that* thread reaches
//! *that* point; every other wait (timer, device, external client) lasts as long as recorded. The recorded
//! kernel time for waiting and waking is subtracted from the computation; the simulation adds its own.

mod follow;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_policy::{Method, Placement, WakeCost, WakeCosts};
use gleaner_proto::trace_file::{Damage, Header, Reader, TraceFileError};

use crate::cost::Costs;
use crate::ids::Ns;
use crate::program::{ChannelKind, ObjectKind, Op, Program};
use crate::random::Dist;
use follow::{Segment, Threads};

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// The file cannot be read.
    #[error("cannot read the trace {}: {source}", path.display())]
    Read {
        /// Path of the trace.
        path: PathBuf,
        /// The operating system's error.
        r#source: std::io::Error,
    },
    /// Not a trace, or one of another version.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the trace.
        path: PathBuf,
        /// What the file is instead.
        r#source: TraceFileError,
    },
    /// The trace is damaged, so the dependencies cannot be reconstructed to the end.
    #[error("{}: {source}; record it again, or end the recording in order", path.display())]
    Damaged {
        /// Path of the trace.
        path: PathBuf,
        /// Where and how it is damaged.
        r#source: Damage,
    },
    /// No event of the workload.
    #[error("{}: no thread of the workload ran while this was recorded; record it while it works", path.display())]
    Empty {
        /// Path of the trace.
        path: PathBuf,
    },
    /// More pairs of waking threads than can be numbered.
    #[error("{}: {pairs} pairs of threads wake each other, {} are possible; record a part of it", path.display(), u16::MAX)]
    Pairs {
        /// Path of the trace.
        path: PathBuf,
        /// Number of pairs.
        pairs: usize,
    },
}

/// A parsed trace.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// When, where and what was recorded.
    pub header: Header,
    /// Length of the recording.
    pub elapsed: Ns,
    /// Hand-offs: waits that were ended by a thread of the workload.
    pub hand_offs: u64,
    /// Waits that were ended by anything else.
    pub timed: u64,
    /// Number of events missing from the trace.
    pub lost: u64,
    threads: Vec<Replayed>,
    /// Pairs of waker and wakee, as indices into `threads`.
    pairs: Vec<(u32, u32)>,
}

#[derive(Debug, Clone)]
struct Replayed {
    name: String,
    segments: Vec<Segment>,
}

/// How a trace is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replay {
    /// Repetitions, one after the other.
    pub times: u64,
    /// Coefficient of variation applied to each recorded computation; 0: none.
    pub vary: f64,
}

impl Default for Replay {
    fn default() -> Self {
        Self { times: 1, vary: 0.0 }
    }
}

impl Recorded {
    /// Reads a trace file.
    ///
    /// # Errors
    /// It cannot be read, is not a valid trace of this version, or contains nothing of the workload.
    pub fn read(path: &Path) -> Result<Self, RecordedError> {
        let bytes =
            std::fs::read(path).map_err(|source| RecordedError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &bytes)
    }

    /// Parses `bytes`; `path` is for error messages.
    ///
    /// # Errors
    /// As [`Recorded::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, RecordedError> {
        let file = |source| RecordedError::File { path: path.to_owned(), source };
        let mut reader = Reader::open(bytes).map_err(file)?;
        let header = reader.header().clone();
        let mut threads = Threads::default();
        for event in reader.by_ref() {
            threads.event(&event);
        }
        if let Some(source) = reader.damage() {
            return Err(RecordedError::Damaged { path: path.to_owned(), source: source.clone() });
        }
        let elapsed = reader.end().map_or(0, |end| end.elapsed_ns).max(threads.last_ns());
        let lost = reader.end().map_or(0, |end| end.lost);
        let (threads, pairs) = threads.finish(&Kernel::of(&machine(&header)));
        if threads.iter().all(|t| t.segments.is_empty()) {
            return Err(RecordedError::Empty { path: path.to_owned() });
        }
        if pairs.len() >= usize::from(u16::MAX) {
            return Err(RecordedError::Pairs { path: path.to_owned(), pairs: pairs.len() });
        }
        let all = || threads.iter().flat_map(|t| &t.segments);
        let hand_offs = all().filter(|s| matches!(s, Segment::Await(_))).count() as u64;
        let timed = all().filter(|s| matches!(s, Segment::Sleep(_) | Segment::Io(_))).count() as u64;
        Ok(Self { header, elapsed, hand_offs, timed, lost, threads, pairs })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Total computation of all threads, without the kernel's share for waiting and waking.
    pub fn computation(&self) -> Ns {
        let all = self.threads.iter().flat_map(|t| &t.segments);
        all.map(|s| if let Segment::Compute(ns) = s { *ns } else { 0 }).sum()
    }

    /// The costs of the recorded machine: the wake-up cost of a halted vCPU and the waker's share of it come
    /// from the trace's header, the rest from [`Costs::THIS_VM`].
    pub fn costs(&self) -> Costs {
        machine(&self.header)
    }

    /// Builds the program; each hand-off counts as one operation.
    pub fn program(&self, replay: Replay) -> Program {
        let mut program = Program::new(&self.header.workload);
        let channels: Vec<u16> = self
            .pairs
            .iter()
            .map(|(from, to)| {
                let number = program.object(ObjectKind::Channel(ChannelKind::Futex));
                let name = |t: u32| self.threads.get(t as usize).map_or("?", |t| t.name.as_str());
                program.names.push((number, format!("{} to {}", name(*from), name(*to))));
                number
            })
            .collect();
        for thread in self.threads.iter().filter(|t| !t.segments.is_empty()) {
            let mut code = vec![Op::Repeat(replay.times.max(1))];
            for segment in &thread.segments {
                match *segment {
                    Segment::Compute(mean) if replay.vary > 0.0 => {
                        code.push(Op::Compute(Dist::LogNormal { mean, cv: replay.vary }));
                    }
                    Segment::Compute(ns) => code.push(Op::Compute(Dist::Constant(ns))),
                    Segment::Post(pair) => code.push(Op::Send(channels[pair as usize])),
                    Segment::Await(pair) => {
                        code.extend([Op::Receive(channels[pair as usize]), Op::Done(1)]);
                    }
                    Segment::Sleep(ns) => code.push(Op::Sleep(Dist::Constant(ns))),
                    Segment::Io(ns) => code.push(Op::Io(Dist::Constant(ns))),
                }
            }
            code.push(Op::Again);
            program.role(&thread.name, 1, code);
        }
        program
    }
}

/// The costs of the recorded machine.
fn machine(header: &Header) -> Costs {
    let config = &header.config;
    let waited = config.wake_cost.saturating_sub(config.waker_cost).max(Duration::from_micros(1));
    let mut costs = WakeCosts::default();
    let cost = WakeCost { min: waited, median: waited, p99: waited, n: 1 };
    costs.insert(Method::Halt, Placement::AcrossHalting, cost);
    let waker = Ns::try_from(config.waker_cost.as_nanos()).ok().filter(|ns| *ns > 0);
    // The trace does not contain the cost of reading the clock.
    Costs::measured(&costs, waker, 0)
}

/// Kernel work between a thread's computations, charged to that thread's CPU time.
#[derive(Debug, Clone, Copy)]
struct Kernel {
    /// Before and after a wait.
    wait: (Ns, Ns),
    /// A wake-up.
    wake: Ns,
    /// Its interrupt, if the vCPU needed one.
    ipi: Ns,
}

impl Kernel {
    fn of(costs: &Costs) -> Self {
        Self {
            wait: (costs.futex_wait, costs.futex_return),
            wake: costs.futex_wake + costs.futex_return,
            ipi: costs.ipi_send_delay + costs.ipi_send_rest,
        }
    }
}
