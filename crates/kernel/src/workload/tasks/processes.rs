//! The counters of each process: CPU time, its write calls, and the bytes moved by read and write calls.

use std::time::Duration;

use super::ProcessStat;
use super::cache::{Cache, FileBudget, Source, Task};
use crate::stat::{ticks, user_tick};
use crate::{KernelError, Root};

/// Sums over processes since the first sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::workload) struct ProcessTotals {
    pub(in crate::workload) user: Duration,
    pub(in crate::workload) system: Duration,
    pub(in crate::workload) io: Option<IoCounts>,
}

/// What read and write calls did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::workload) struct IoCounts {
    /// Bytes read and written.
    pub(in crate::workload) bytes: u64,
    /// Write calls.
    pub(in crate::workload) writes: u64,
}

#[derive(Debug)]
struct Process {
    parent: u32,
    stat: Source,
    io: Option<Source>,
    /// User and system ticks.
    last_ticks: (u64, u64),
    last_io: IoCounts,
}

impl Task for Process {
    /// When a parent waits for a process, the kernel adds the child's counts to the parent's
    /// (`wait_task_zombie`): subtract them there, or they would count twice.
    fn end(self, cache: &mut Cache<Self>) {
        cache.budget.release(&self.stat);
        if let Some(io) = &self.io {
            cache.budget.release(io);
        }
        if let Some(parent) = cache.known.get_mut(&self.parent) {
            parent.last_io.bytes += self.last_io.bytes;
            parent.last_io.writes += self.last_io.writes;
        }
    }
}

/// The processes of a workload and the sum of their counters.
#[derive(Debug)]
pub(in crate::workload) struct Processes {
    cache: Cache<Process>,
    sums: Sums,
    has_io: bool,
}

#[derive(Debug, Default)]
struct Sums {
    /// User and system ticks.
    ticks: (u64, u64),
    io: IoCounts,
}

impl Processes {
    pub(in crate::workload) fn new(root: &Root, budget: FileBudget) -> Self {
        let has_io = root.exists("/proc/self/io");
        Self { cache: Cache::new(root, budget), sums: Sums::default(), has_io }
    }

    pub(in crate::workload) fn len(&self) -> usize {
        self.cache.known.len()
    }

    /// The sums since the first call. `listed` must be ascending. CPU times are read only with `cpu_times`,
    /// since the kernel walks all threads to sum them.
    pub(in crate::workload) fn sample(
        &mut self,
        listed: &[u32],
        cpu_times: bool,
    ) -> Result<ProcessTotals, KernelError> {
        let mut io_complete = self.has_io;
        let (sums, has_io) = (&mut self.sums, self.has_io);
        // In ascending order, so parents come first: see `Process::end`.
        self.cache.sample_each(listed, |cache, pid| {
            if !cache.known.contains_key(&pid) {
                let process = open_process(cache, pid, has_io)?;
                cache.known.insert(pid, process);
            }
            if let Some(process) = cache.known.get_mut(&pid) {
                io_complete &= sums.add(&cache.root, pid, process, cpu_times)?;
            }
            Ok(())
        })?;
        Ok(ProcessTotals {
            user: ticks(self.sums.ticks.0, user_tick()),
            system: ticks(self.sums.ticks.1, user_tick()),
            io: io_complete.then_some(self.sums.io),
        })
    }
}

impl Sums {
    /// Adds what `process` did since it was last read; returns whether its reads and writes were readable.
    fn add(
        &mut self,
        root: &Root,
        pid: u32,
        process: &mut Process,
        cpu_times: bool,
    ) -> Result<bool, KernelError> {
        // Without other files, read this one just to notice that the process has ended.
        if cpu_times || process.io.is_none() {
            let now = read_ticks(root, pid, &process.stat)?;
            self.ticks.0 += now.0.saturating_sub(process.last_ticks.0);
            self.ticks.1 += now.1.saturating_sub(process.last_ticks.1);
            process.last_ticks = now;
        }
        let Some(io) = &process.io else { return Ok(false) };
        let now = read_io(root, pid, io)?;
        self.io.bytes += now.bytes.saturating_sub(process.last_io.bytes);
        self.io.writes += now.writes.saturating_sub(process.last_io.writes);
        process.last_io = now;
        Ok(true)
    }
}

fn open_process(cache: &mut Cache<Process>, pid: u32, has_io: bool) -> Result<Process, KernelError> {
    let path = format!("/proc/{pid}/stat");
    let is_newer = cache.is_newer(&path)?;
    let (root, budget) = (&cache.root, &mut cache.budget);
    let parent = ProcessStat::read_at(root, &path)?.parent;
    let io = has_io.then(|| budget.open(root, &format!("/proc/{pid}/io")));
    let mut process = Process {
        parent,
        stat: budget.open(root, &path)?,
        io: io.transpose().or_else(|error| if error.is_denied() { Ok(None) } else { Err(error) })?,
        last_ticks: (0, 0),
        last_io: IoCounts::default(),
    };
    if !is_newer {
        process.last_ticks = read_ticks(root, pid, &process.stat)?;
        if let Some(io) = &process.io {
            process.last_io = read_io(root, pid, io)?;
        }
    }
    Ok(process)
}

/// User and system ticks.
fn read_ticks(root: &Root, pid: u32, source: &Source) -> Result<(u64, u64), KernelError> {
    let mut buffer = [0; 1024];
    let text = source.read(root, &mut buffer)?;
    ProcessStat::parse(text)
        .map(|stat| (stat.user_ticks, stat.system_ticks))
        .ok_or_else(|| KernelError::parse(root.path(format!("/proc/{pid}/stat")), "52 fields", text))
}

/// `rchar` + `wchar`, and `syscw`.
fn read_io(root: &Root, pid: u32, source: &Source) -> Result<IoCounts, KernelError> {
    let mut buffer = [0; 512];
    let text = source.read(root, &mut buffer)?;
    let field = |name| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let counts = || Some(IoCounts { bytes: field("rchar:")? + field("wchar:")?, writes: field("syscw:")? });
    counts().ok_or_else(|| {
        KernelError::parse(root.path(format!("/proc/{pid}/io")), "rchar, wchar and syscw", text)
    })
}
