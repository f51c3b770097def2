//! Recorded traces as programs: what `gleaner record` saw of each thread, replayed as computation and dependencies.
//!
//! A wait that a thread of the workload ended ends in the simulation when *that* thread has come to *that* point; every other
//! wait (a timer, a device, a client outside the workload) lasts as long as it was recorded. What the recorded machine
//! spent in the kernel on waiting and waking is taken out of the computation, since the simulated one spends its own.

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

/// A trace that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// The file cannot be read.
    #[error("cannot read the trace {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        r#source: std::io::Error,
    },
    /// It is no trace, or one of another version.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        r#source: TraceFileError,
    },
    /// It is damaged: what waited for what cannot be known to the end.
    #[error("{}: {source}; record it again, or end the recording in order", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where and how.
        r#source: Damage,
    },
    /// Nothing of the workload is in it.
    #[error("{}: no thread of the workload ran while this was recorded; record it while it works", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// More pairs of threads wake each other than can be told apart.
    #[error("{}: {pairs} pairs of threads wake each other, {} are possible; record a part of it", path.display(), u16::MAX)]
    Pairs {
        /// The file.
        path: PathBuf,
        /// How many.
        pairs: usize,
    },
}

/// A trace that was understood.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// When, what and where.
    pub header: Header,
    /// How long was recorded.
    pub elapsed: Ns,
    /// Hand-offs: waits that a thread of the workload ended.
    pub hand_offs: u64,
    /// Waits that something else ended.
    pub timed: u64,
    /// Events that are missing in the trace.
    pub lost: u64,
    threads: Vec<Replayed>,
    /// Who wakes whom, as places in `threads`.
    pairs: Vec<(u32, u32)>,
}

/// A thread of it.
#[derive(Debug, Clone)]
struct Replayed {
    name: String,
    segments: Vec<Segment>,
}

/// How a trace is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replay {
    /// How often, one after the other.
    pub times: u64,
    /// Standard deviation over mean by which each computation varies from its recorded length; 0: not at all.
    pub vary: f64,
}

impl Default for Replay {
    fn default() -> Self {
        Self { times: 1, vary: 0.0 }
    }
}

impl Recorded {
    /// Reads the trace in the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, is no sound trace of this version, or nothing of the workload is in it.
    pub fn read(path: &Path) -> Result<Self, RecordedError> {
        let bytes =
            std::fs::read(path).map_err(|source| RecordedError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &bytes)
    }

    /// The trace in `bytes`, called `path` in errors.
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

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The computation of all threads, without what waiting and waking cost in the kernel.
    pub fn computation(&self) -> Ns {
        let all = self.threads.iter().flat_map(|t| &t.segments);
        all.map(|s| if let Segment::Compute(ns) = s { *ns } else { 0 }).sum()
    }

    /// The costs of the recorded machine, as far as the trace's header knows them: what a wake-up of a halted vCPU costs
    /// and the waker's share of it; the rest is [`Costs::THIS_VM`]'s.
    pub fn costs(&self) -> Costs {
        machine(&self.header)
    }

    /// The program. An operation is a hand-off.
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

/// The costs of the machine behind a trace.
fn machine(header: &Header) -> Costs {
    let config = &header.config;
    let waited = config.wake_cost.saturating_sub(config.waker_cost).max(Duration::from_micros(1));
    let mut costs = WakeCosts::default();
    let cost = WakeCost { min: waited, median: waited, p99: waited, n: 1 };
    costs.insert(Method::Halt, Placement::AcrossHalting, cost);
    let waker = Ns::try_from(config.waker_cost.as_nanos()).ok().filter(|ns| *ns > 0);
    // How long reading its clock took there is not in the trace.
    Costs::measured(&costs, waker, 0)
}

/// What the recorded kernel did between a thread's computations, in the thread's own CPU time.
#[derive(Debug, Clone, Copy)]
struct Kernel {
    /// Before and after a wait.
    wait: (Ns, Ns),
    /// A wake-up.
    wake: Ns,
    /// The interrupt for one, where the vCPU had to be told.
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
