//! Reads a record, decides again, and compares.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use gleaner_coordination::record::{Decision, Header, Line, MOST_PCPUS, RECORD, Task, VERSION, What};
use serde::{Deserialize, Serialize};

use super::world::{Open, World};

/// Orders of what happens at the same time that are followed.
const MOST_WORLDS: usize = 64;

/// Why a record cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("cannot read the record {}: {source}", path.display())]
    Read {
        /// Path of the record.
        path: PathBuf,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// A line is no event.
    #[error("{}: line {line} is no event of a scheduler: {source}", path.display())]
    Line {
        /// Path of the record.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        r#source: serde_json::Error,
    },
    /// Of another version of the format.
    #[error(
        "{}: the record has version {found}, and this program reads {VERSION}: use the gleaner-sim of the same version",
        path.display()
    )]
    Version {
        /// Path of the record.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A pCPU that the record's header does not have.
    #[error("{}: line {line} names another pCPU than the host's {pcpus}, of at most {MOST_PCPUS}", path.display())]
    Pcpu {
        /// Path of the record.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// How many numbers there are.
        pcpus: u32,
    },
    /// The scheduler was not heard to the end, so its state is not known.
    #[error("{}: {lost} events did not fit into the buffer; record for a shorter time, or a host that does less", path.display())]
    Lost {
        /// Path of the record.
        path: PathBuf,
        /// How many.
        lost: u64,
    },
}

/// How far the decisions are the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    /// Version of the JSON form.
    pub version: u32,
    /// The kernel of the recorded host.
    pub kernel: String,
    /// pCPUs that were online.
    pub pcpus: u32,
    /// VMs of which a vCPU ran.
    pub vms: usize,
    /// Tasks that ran.
    pub tasks: usize,
    /// Time from the first to the last event, in ns.
    pub elapsed_ns: u64,
    /// What was reported to the scheduler.
    pub events: usize,
    /// Its decisions, by kind: `placed`, `kicked`, `preempts`, `timed`, `chose` and `yielded` as [`Decision`] has them, and
    /// `ran`, who did after that.
    pub decisions: BTreeMap<&'static str, Count>,
    /// The first decision that is not the same.
    pub difference: Option<Difference>,
}

/// Decisions of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Those of the scheduler.
    pub recorded: usize,
    /// Those that are the same here.
    pub same: usize,
}

/// A decision that is not the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Line of the decision in the record, counted from 1; if there is none, of what it should have followed from.
    pub line: usize,
    /// The pCPU that decided.
    pub on: u32,
    /// What the scheduler did; `None`: nothing.
    pub recorded: Option<Made>,
    /// What it should have decided.
    pub expected: Vec<Decision>,
}

/// What a scheduler did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Made {
    /// A decision.
    Decided(Decision),
    /// It ran a task that, by its decisions, still waits.
    Ran {
        /// The task.
        task: Task,
        /// Where it ran.
        cpu: u32,
    },
}

impl Agreement {
    /// All decisions together.
    pub fn total(&self) -> Count {
        let add = |sum: Count, count: &Count| Count {
            recorded: sum.recorded + count.recorded,
            same: sum.same + count.same,
        };
        self.decisions.values().fold(Count::default(), add)
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided(decision) => write!(f, "{}", text(decision)),
            Self::Ran { task, cpu } => {
                write!(f, "thread {task} ran on pCPU {cpu}, and waits elsewhere or for others")
            }
        }
    }
}

/// A decision in words.
fn text(decision: &Decision) -> String {
    match decision {
        Decision::Placed { task, cpu, idle: true } => {
            format!("thread {task} goes to pCPU {cpu}, which is idle")
        }
        Decision::Placed { task, cpu, idle: false } => format!("thread {task} goes to pCPU {cpu}"),
        Decision::Kicked { cpu, .. } => format!("pCPU {cpu} decides anew at once"),
        Decision::Preempts { task, cpu } => format!("thread {task} preempts who runs on pCPU {cpu}"),
        Decision::Timed { ns } => format!("it decides anew in {ns} ns"),
        Decision::Chose { cpu, choice } => format!("pCPU {cpu}: {choice:?}"),
        Decision::Yielded { task, gives: true } => format!("thread {task} gives its pCPU away"),
        Decision::Yielded { task, gives: false } => format!("thread {task} keeps its pCPU"),
    }
}

impl Difference {
    /// Both sides in words.
    pub fn text(&self) -> String {
        let nothing = || "nothing".to_owned();
        let recorded = self.recorded.map_or_else(nothing, |made| made.to_string());
        let expected = match self.expected.as_slice() {
            [] => nothing(),
            some => some.iter().map(text).collect::<Vec<_>>().join("; "),
        };
        format!("scx_gleaner: {recorded}; the simulator: {expected}")
    }
}

/// Whether the file begins as a record of the scheduler.
pub fn is_record(bytes: &[u8]) -> bool {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice::<Kind>(first).is_ok_and(|kind| kind.record == RECORD)
}

/// What every version's header has.
#[derive(Deserialize)]
struct Kind {
    record: String,
    version: u32,
}

/// Decides once more what the recorded scheduler decided.
///
/// # Errors
/// The record cannot be read, or is not whole. One whose end is missing, because the scheduler was killed, is replayed as far
/// as it goes.
pub fn replay(path: &Path) -> Result<Agreement, RecordError> {
    let text =
        fs::read_to_string(path).map_err(|source| RecordError::Read { path: path.to_owned(), source })?;
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line)).peekable();
    let malformed = |line, source| RecordError::Line { path: path.to_owned(), line, source };
    let (_, first) = lines.next().unwrap_or((1, ""));
    let Kind { version: found, .. } = serde_json::from_str(first).map_err(|source| malformed(1, source))?;
    if found != VERSION {
        return Err(RecordError::Version { path: path.to_owned(), found });
    }
    let header: Header = serde_json::from_str(first).map_err(|source| malformed(1, source))?;
    let pcpus = header.pcpus;
    if u64::BITS - header.online.leading_zeros() > pcpus || pcpus > MOST_PCPUS {
        return Err(RecordError::Pcpu { path: path.to_owned(), line: 1, pcpus });
    }
    let mut comparison = Comparison::new(header);
    while let Some((number, line)) = lines.next() {
        let line: Line = match serde_json::from_str(line) {
            Ok(line) => line,
            // The scheduler was killed while it wrote.
            Err(_) if lines.peek().is_none() && !text.ends_with('\n') => break,
            Err(source) => return Err(malformed(number, source)),
        };
        if pcpus_of(&line).into_iter().any(|cpu| cpu >= pcpus) {
            return Err(RecordError::Pcpu { path: path.to_owned(), line: number, pcpus });
        }
        if let What::End { lost: lost @ 1.. } = line.what {
            return Err(RecordError::Lost { path: path.to_owned(), lost });
        }
        comparison.take(number, &line);
    }
    Ok(comparison.end())
}

fn pcpus_of(line: &Line) -> [u32; 3] {
    let on = line.on;
    match line.what {
        What::Woken { cpu, last, .. } => [on, cpu, last],
        What::Vcpu { cpu, .. }
        | What::Runnable { cpu, .. }
        | What::Queued { cpu, .. }
        | What::Next { cpu, .. }
        | What::Asks { cpu, .. }
        | What::Runs { cpu, .. }
        | What::Decides(
            Decision::Placed { cpu, .. }
            | Decision::Kicked { cpu, .. }
            | Decision::Preempts { cpu, .. }
            | Decision::Chose { cpu, .. },
        ) => [on, cpu, cpu],
        _ => [on, on, on],
    }
}

/// The worlds that fit a record, each with another order of what happened at the same time on several pCPUs.
struct Comparison {
    worlds: Vec<World>,
    agreement: Agreement,
    ran: BTreeSet<Task>,
    vms: BTreeSet<u32>,
    times: Option<(u64, u64)>,
}

impl Comparison {
    fn new(header: Header) -> Self {
        let agreement = Agreement {
            version: 1,
            kernel: header.kernel.clone(),
            pcpus: header.online.count_ones(),
            vms: 0,
            tasks: 0,
            elapsed_ns: 0,
            events: 0,
            decisions: BTreeMap::new(),
            difference: None,
        };
        let worlds = vec![World::new(header)];
        Self { worlds, agreement, ran: BTreeSet::new(), vms: BTreeSet::new(), times: None }
    }

    fn take(&mut self, number: usize, line: &Line) {
        let on = line.on;
        match line.what {
            What::End { .. } => {}
            What::Decides(decision) => {
                let by_kernel = self.worlds.iter().any(|world| world.is_by_kernel(on, &decision));
                let same = self
                    .each(number, on, Some(Made::Decided(decision)), |world| world.decided(on, &decision));
                if !by_kernel {
                    self.count(kind_of(&decision), same);
                }
                if matches!(decision, Decision::Chose { .. }) {
                    self.forget_equal();
                }
            }
            _ => self.happened(number, line),
        }
    }

    fn happened(&mut self, number: usize, line: &Line) {
        self.agreement.events += 1;
        if let Some(at) = time_of(&line.what) {
            let (first, last) = self.times.unwrap_or((at, at));
            self.times = Some((first.min(at), last.max(at)));
        }
        let on = line.on;
        self.each(number, on, None, |world| world.overdue(on));
        match line.what {
            What::Runs { task, cpu, .. } => {
                self.ran.insert(task);
                let made = Some(Made::Ran { task, cpu });
                let same = self.each(number, on, made, |world| world.may_run(task, cpu));
                self.count("ran", same);
            }
            What::Vcpu { vm, .. } => {
                self.vms.insert(vm);
            }
            What::Interrupt { .. } | What::Asks { .. } | What::Queued { woken: false, .. } => {
                // The other order: whatever happens elsewhere before this is done comes first.
                let later: Vec<World> =
                    self.worlds.iter().map(|world| world.with_open(number, line)).collect();
                self.happens(number, line);
                self.worlds.extend(later);
                if self.worlds.len() > MOST_WORLDS {
                    self.forget_equal();
                }
                return;
            }
            _ => {}
        }
        // Questions on other pCPUs may have been answered just before.
        let answered: Vec<World> =
            self.worlds.iter().filter_map(|world| world.answered(number, on)).collect();
        self.happens(number, line);
        for mut world in answered {
            world.happens(number, line);
            self.worlds.push(world);
        }
        if let What::Stops { task, .. } = line.what {
            // It stops and falls asleep at two moments. In between it may be interrupted.
            let between: Vec<World> =
                self.worlds.iter().filter_map(|world| world.interrupted(number, task)).collect();
            self.worlds.extend(between);
        }
        if matches!(line.what, What::Sent { .. }) {
            self.forget_equal();
        }
    }

    fn happens(&mut self, number: usize, line: &Line) {
        for world in &mut self.worlds {
            world.happens(number, line);
        }
    }

    /// Keeps the worlds in which `check` finds nothing wrong. If there is none, that is a difference.
    fn each(
        &mut self,
        line: usize,
        on: u32,
        recorded: Option<Made>,
        mut check: impl FnMut(&mut World) -> Result<(), Vec<Open>>,
    ) -> bool {
        let found: Vec<_> = self.worlds.iter_mut().map(&mut check).collect();
        if found.iter().any(Result::is_ok) {
            let mut found = found.iter();
            self.worlds.retain(|_| found.next().is_some_and(Result::is_ok));
            return true;
        }
        let expected = found.into_iter().find_map(Result::err).unwrap_or_default();
        let line = match (recorded, expected.first()) {
            (None, Some((since, decision))) => {
                self.count(kind_of(decision), false);
                *since
            }
            _ => line,
        };
        let expected = expected.into_iter().map(|(_, decision)| decision).collect();
        self.agreement.difference.get_or_insert(Difference { line, on, recorded, expected });
        self.forget_equal();
        false
    }

    fn forget_equal(&mut self) {
        let mut different: Vec<World> = Vec::with_capacity(self.worlds.len());
        for world in self.worlds.drain(..) {
            if !different.contains(&world) {
                different.push(world);
            }
        }
        different.truncate(MOST_WORLDS);
        self.worlds = different;
    }

    fn count(&mut self, kind: &'static str, same: bool) {
        let count = self.agreement.decisions.entry(kind).or_default();
        count.recorded += 1;
        count.same += usize::from(same);
    }

    fn end(mut self) -> Agreement {
        let (first, last) = self.times.unwrap_or_default();
        self.agreement.elapsed_ns = last - first;
        (self.agreement.tasks, self.agreement.vms) = (self.ran.len(), self.vms.len());
        self.agreement
    }
}

fn kind_of(decision: &Decision) -> &'static str {
    match decision {
        Decision::Placed { .. } => "placed",
        Decision::Kicked { .. } => "kicked",
        Decision::Preempts { .. } => "preempts",
        Decision::Timed { .. } => "timed",
        Decision::Chose { .. } => "chose",
        Decision::Yielded { .. } => "yielded",
    }
}

fn time_of(what: &What) -> Option<u64> {
    match *what {
        What::Vcpu { at, .. }
        | What::Runnable { at, .. }
        | What::Quiescent { at, .. }
        | What::Queued { at, .. }
        | What::Asks { at, .. }
        | What::Runs { at, .. }
        | What::Stops { at, .. }
        | What::Interrupt { at, .. }
        | What::Halts { at, .. }
        | What::Spins { at, .. }
        | What::Yields { at, .. } => Some(at),
        _ => None,
    }
}
