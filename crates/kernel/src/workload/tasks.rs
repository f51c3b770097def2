//! Counters of threads and processes, accumulated so that the sums survive their ends.

use std::collections::HashMap;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use nix::time::{ClockId, clock_gettime};

use crate::file::KernelFile;
use crate::stat::{ticks, user_tick};
use crate::{KernelError, Root};

/// How many more files may be kept open.
#[derive(Debug)]
pub(super) struct FileBudget {
    left: usize,
}

impl FileBudget {
    /// At most `limit`, and no more than half of what the process may open: the rest is for the program around.
    pub(super) fn new(limit: usize) -> Self {
        let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Self { left: limit.min(usize::try_from(soft / 2).unwrap_or(limit)) }
    }

    /// Splits off `1/parts` of the budget.
    pub(super) fn split(&mut self, parts: usize) -> Self {
        let left = self.left / parts;
        self.left -= left;
        Self { left }
    }

    fn open(&mut self, root: &Root, path: &str) -> Result<Source, KernelError> {
        let file = KernelFile::open(root, path)?;
        if self.left == 0 {
            return Ok(Source::ByPath(path.to_owned()));
        }
        self.left -= 1;
        Ok(Source::Open(file))
    }

    fn release(&mut self, source: &Source) {
        self.left += usize::from(matches!(source, Source::Open(_)));
    }
}

/// A file that is read at each sample.
#[derive(Debug)]
enum Source {
    Open(KernelFile),
    /// Beyond the budget.
    ByPath(String),
}

impl Source {
    fn read<'b>(&self, root: &Root, buffer: &'b mut [u8]) -> Result<&'b str, KernelError> {
        match self {
            Self::Open(file) => file.read_short(buffer),
            Self::ByPath(path) => KernelFile::open(root, path)?.read_short(buffer),
        }
    }
}

/// `/proc/PID/stat` (kernel: `Documentation/filesystems/proc.rst`, table 1-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessStat {
    pub(super) parent: u32,
    user_ticks: u64,
    system_ticks: u64,
    /// When it started, in ticks since boot.
    pub(super) start_ticks: u64,
}

impl ProcessStat {
    pub(super) fn read(root: &Root, pid: u32) -> Result<Self, KernelError> {
        Self::read_at(root, &format!("/proc/{pid}/stat"))
    }

    fn read_at(root: &Root, path: &str) -> Result<Self, KernelError> {
        let text = root.read(path)?;
        Self::parse(&text).ok_or_else(|| KernelError::parse(root.path(path), "52 fields", &text))
    }

    fn parse(text: &str) -> Option<Self> {
        // The command's name, in parentheses, may itself hold blanks and parentheses.
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        Some(Self {
            parent: fields.nth(1)?.parse().ok()?,
            user_ticks: fields.nth(9)?.parse().ok()?,
            system_ticks: fields.next()?.parse().ok()?,
            start_ticks: fields.nth(6)?.parse().ok()?,
        })
    }
}

/// User and system time of the process `pid`: of all of its threads, ended ones too, and not of its children. As fine
/// as the tick of `/proc`, 10 ms.
///
/// # Errors
/// Where there is no such process; one that has ended is still there until it is waited for.
pub fn process_times(root: &Root, pid: u32) -> Result<(Duration, Duration), KernelError> {
    let stat = ProcessStat::read(root, pid)?;
    Ok((ticks(stat.user_ticks, user_tick()), ticks(stat.system_ticks, user_tick())))
}

/// The time since boot in the unit of [`ProcessStat::start_ticks`].
fn now_ticks() -> u64 {
    // The clock exists on every kernel since 2.6.39. Zero would count a newcomer's whole past: never less.
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_nanos() / user_tick().as_nanos()).unwrap_or(u64::MAX)
}

/// When the last sample began, in ticks: what started since then counts from its start, what is older (it was
/// moved into the cgroup) from its first sample. `None` before the first sample, which is everyone's baseline.
#[derive(Debug, Default)]
struct LastSample(Option<u64>);

impl LastSample {
    /// Whether the task whose `stat` file is at `path` started since. A start in the same tick counts as since.
    fn is_newer(&self, root: &Root, path: &str) -> Result<bool, KernelError> {
        match self.0 {
            None => Ok(false),
            Some(last) => Ok(ProcessStat::read_at(root, path)?.start_ticks >= last),
        }
    }
}

/// The three numbers of `/proc/TID/schedstat` (kernel: `Documentation/scheduler/sched-stats.rst`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SchedStat {
    pub(super) run_ns: u64,
    pub(super) delay_ns: u64,
    pub(super) switches: u64,
}

impl SchedStat {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
        let mut next = || fields.next().flatten();
        Some(Self { run_ns: next()?, delay_ns: next()?, switches: next()? })
    }

    /// Adds what was counted between `from` and `to`. Less than before means a TID used again.
    fn add(&mut self, from: Self, to: Self) {
        let from = if to.run_ns < from.run_ns { Self::default() } else { from };
        self.run_ns += to.run_ns - from.run_ns;
        self.delay_ns += to.delay_ns.saturating_sub(from.delay_ns);
        self.switches += to.switches.saturating_sub(from.switches);
    }
}

#[derive(Debug)]
struct Thread {
    source: Source,
    last: SchedStat,
}

/// The threads of a workload and the sum of their counters.
#[derive(Debug)]
pub(super) struct Threads {
    root: Root,
    budget: FileBudget,
    known: HashMap<u32, Thread>,
    last_sample: LastSample,
    total: SchedStat,
}

impl Threads {
    pub(super) fn new(root: &Root, budget: FileBudget) -> Self {
        Self {
            root: root.clone(),
            budget,
            known: HashMap::new(),
            last_sample: LastSample::default(),
            total: SchedStat::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    #[cfg(test)]
    pub(super) fn open_files(&self) -> usize {
        self.known.values().filter(|thread| matches!(thread.source, Source::Open(_))).count()
    }

    /// The sum since the first call. `listed` must be ascending.
    pub(super) fn sample(&mut self, listed: &[u32]) -> Result<SchedStat, KernelError> {
        let now = now_ticks();
        let left: Vec<u32> =
            self.known.keys().copied().filter(|tid| listed.binary_search(tid).is_err()).collect();
        for tid in left {
            self.forget(tid);
        }
        for &tid in listed {
            match self.sample_thread(tid) {
                Err(error) if error.is_gone() => self.forget(tid),
                result => result?,
            }
        }
        self.last_sample = LastSample(Some(now));
        Ok(self.total)
    }

    fn sample_thread(&mut self, tid: u32) -> Result<(), KernelError> {
        let mut buffer = [0; 96];
        if let Some(thread) = self.known.get_mut(&tid) {
            let now = read_schedstat(&self.root, tid, &thread.source, &mut buffer)?;
            self.total.add(thread.last, now);
            thread.last = now;
            return Ok(());
        }
        // The thread's own file: that of the process would sum over all threads.
        let is_newer = self.last_sample.is_newer(&self.root, &format!("/proc/{tid}/task/{tid}/stat"))?;
        let source = self.budget.open(&self.root, &format!("/proc/{tid}/schedstat"))?;
        match read_schedstat(&self.root, tid, &source, &mut buffer) {
            Ok(now) => {
                self.total.add(if is_newer { SchedStat::default() } else { now }, now);
                self.known.insert(tid, Thread { source, last: now });
                Ok(())
            }
            Err(error) => {
                self.budget.release(&source);
                Err(error)
            }
        }
    }

    fn forget(&mut self, tid: u32) {
        if let Some(thread) = self.known.remove(&tid) {
            self.budget.release(&thread.source);
        }
    }
}

fn read_schedstat(
    root: &Root,
    tid: u32,
    source: &Source,
    buffer: &mut [u8],
) -> Result<SchedStat, KernelError> {
    let text = source.read(root, buffer)?;
    SchedStat::parse(text)
        .ok_or_else(|| KernelError::parse(root.path(format!("/proc/{tid}/schedstat")), "three numbers", text))
}

/// The sums over processes since the first sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessTotals {
    pub(super) user: Duration,
    pub(super) system: Duration,
    pub(super) moved_bytes: Option<u64>,
}

#[derive(Debug)]
struct Process {
    parent: u32,
    stat: Source,
    io: Option<Source>,
    /// User and system ticks.
    last_ticks: (u64, u64),
    last_moved: u64,
}

/// The processes of a workload and the sum of their counters.
#[derive(Debug)]
pub(super) struct Processes {
    root: Root,
    budget: FileBudget,
    known: HashMap<u32, Process>,
    last_sample: LastSample,
    ticks: (u64, u64),
    moved: u64,
    has_io: bool,
}

impl Processes {
    pub(super) fn new(root: &Root, budget: FileBudget) -> Self {
        Self {
            root: root.clone(),
            budget,
            known: HashMap::new(),
            last_sample: LastSample::default(),
            ticks: (0, 0),
            moved: 0,
            has_io: root.exists("/proc/self/io"),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// The sums since the first call. `listed` must be ascending. Without `cpu_times` they are not read: to sum
    /// them the kernel walks through all threads.
    pub(super) fn sample(&mut self, listed: &[u32], cpu_times: bool) -> Result<ProcessTotals, KernelError> {
        let now = now_ticks();
        let left: Vec<u32> =
            self.known.keys().copied().filter(|pid| listed.binary_search(pid).is_err()).collect();
        for pid in left {
            self.forget(pid);
        }
        let mut io_complete = self.has_io;
        // Ascending, so parents come first: see `forget`.
        for &pid in listed {
            match self.sample_process(pid, cpu_times) {
                Ok(with_io) => io_complete &= with_io,
                Err(error) if error.is_gone() => self.forget(pid),
                Err(error) => return Err(error),
            }
        }
        self.last_sample = LastSample(Some(now));
        Ok(ProcessTotals {
            user: ticks(self.ticks.0, user_tick()),
            system: ticks(self.ticks.1, user_tick()),
            moved_bytes: io_complete.then_some(self.moved),
        })
    }

    /// Whether the process let its bytes be read.
    fn sample_process(&mut self, pid: u32, cpu_times: bool) -> Result<bool, KernelError> {
        if !self.known.contains_key(&pid) {
            self.meet(pid)?;
        }
        let Some(process) = self.known.get_mut(&pid) else { return Ok(false) };
        // Read it for nothing where there is no other sign that the process has ended.
        if cpu_times || process.io.is_none() {
            let now = read_ticks(&self.root, pid, &process.stat)?;
            self.ticks.0 += now.0.saturating_sub(process.last_ticks.0);
            self.ticks.1 += now.1.saturating_sub(process.last_ticks.1);
            process.last_ticks = now;
        }
        let Some(io) = &process.io else { return Ok(false) };
        let now = read_moved(&self.root, pid, io)?;
        self.moved += now.saturating_sub(process.last_moved);
        process.last_moved = now;
        Ok(true)
    }

    fn meet(&mut self, pid: u32) -> Result<(), KernelError> {
        let path = format!("/proc/{pid}/stat");
        let is_newer = self.last_sample.is_newer(&self.root, &path)?;
        let parent = ProcessStat::read_at(&self.root, &path)?.parent;
        let io = self.has_io.then(|| self.budget.open(&self.root, &format!("/proc/{pid}/io")));
        let mut process = Process {
            parent,
            stat: self.budget.open(&self.root, &path)?,
            io: io.transpose().or_else(|error| if error.is_denied() { Ok(None) } else { Err(error) })?,
            last_ticks: (0, 0),
            last_moved: 0,
        };
        if !is_newer {
            process.last_ticks = read_ticks(&self.root, pid, &process.stat)?;
            if let Some(io) = &process.io {
                process.last_moved = read_moved(&self.root, pid, io)?;
            }
        }
        self.known.insert(pid, process);
        Ok(())
    }

    /// A process that its parent has waited for leaves its byte counts to the parent (kernel:
    /// `wait_task_zombie`): they are taken into the parent's past, or they would count a second time.
    fn forget(&mut self, pid: u32) {
        let Some(gone) = self.known.remove(&pid) else { return };
        self.budget.release(&gone.stat);
        if let Some(io) = &gone.io {
            self.budget.release(io);
        }
        if let Some(parent) = self.known.get_mut(&gone.parent) {
            parent.last_moved += gone.last_moved;
        }
    }
}

/// User and system ticks.
fn read_ticks(root: &Root, pid: u32, source: &Source) -> Result<(u64, u64), KernelError> {
    let mut buffer = [0; 1024];
    let text = source.read(root, &mut buffer)?;
    ProcessStat::parse(text)
        .map(|stat| (stat.user_ticks, stat.system_ticks))
        .ok_or_else(|| KernelError::parse(root.path(format!("/proc/{pid}/stat")), "52 fields", text))
}

/// `rchar` + `wchar`.
fn read_moved(root: &Root, pid: u32, source: &Source) -> Result<u64, KernelError> {
    let mut buffer = [0; 512];
    let text = source.read(root, &mut buffer)?;
    let field = |name| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    field("rchar:")
        .zip(field("wchar:"))
        .map(|(read, written)| read + written)
        .ok_or_else(|| KernelError::parse(root.path(format!("/proc/{pid}/io")), "rchar and wchar", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_a_hostile_name() {
        let text = "7 (a) (b 1 2) S 5 7 7 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1 0 4242 8 9";
        let expected = ProcessStat { parent: 5, user_ticks: 11, system_ticks: 12, start_ticks: 4242 };
        assert_eq!(ProcessStat::parse(text), Some(expected));
        assert_eq!(ProcessStat::parse("7 (a) S 5 7"), None);
        assert_eq!(ProcessStat::parse(""), None);
    }

    #[test]
    fn the_system_clock_and_start_times_agree() {
        let me = ProcessStat::read(&Root::system(), std::process::id()).unwrap();
        assert!(me.start_ticks <= now_ticks() && now_ticks() - me.start_ticks < 360_000, "within the hour");
    }

    #[test]
    fn a_tid_used_again_counts_from_zero() {
        let mut total = SchedStat::default();
        let at = |n| SchedStat { run_ns: n, delay_ns: n, switches: n };
        total.add(at(10), at(15));
        total.add(at(15), at(3));
        assert_eq!(total.run_ns, 8);
    }
}
