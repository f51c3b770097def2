//! The scheduler's counters of each thread: time on a vCPU, time runnable without one, times scheduled.

use super::cache::{Cache, FileBudget, Source, Task};
use crate::{KernelError, Root};

/// The three numbers of `/proc/TID/schedstat` (kernel: `Documentation/scheduler/sched-stats.rst`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::workload) struct SchedStat {
    pub(in crate::workload) run_ns: u64,
    pub(in crate::workload) delay_ns: u64,
    pub(in crate::workload) switches: u64,
}

impl SchedStat {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
        let mut next = || fields.next().flatten();
        Some(Self { run_ns: next()?, delay_ns: next()?, switches: next()? })
    }

    /// Adds the difference from `from` to `to`. A decrease means a reused TID.
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

impl Task for Thread {
    fn end(self, cache: &mut Cache<Self>) {
        cache.budget.release(&self.source);
    }
}

/// The threads of a workload and the sum of their counters.
#[derive(Debug)]
pub(in crate::workload) struct Threads {
    cache: Cache<Thread>,
    total: SchedStat,
    ran: usize,
}

impl Threads {
    pub(in crate::workload) fn new(root: &Root, budget: FileBudget) -> Self {
        Self { cache: Cache::new(root, budget), total: SchedStat::default(), ran: 0 }
    }

    pub(in crate::workload) fn len(&self) -> usize {
        self.cache.known.len()
    }

    /// How many of them ran between the last two calls of [`Threads::sample`].
    pub(in crate::workload) fn ran(&self) -> usize {
        self.ran
    }

    #[cfg(test)]
    pub(in crate::workload) fn open_files(&self) -> usize {
        self.cache.known.values().filter(|thread| thread.source.is_open()).count()
    }

    /// The sum since the first call. `listed` must be ascending.
    pub(in crate::workload) fn sample(&mut self, listed: &[u32]) -> Result<SchedStat, KernelError> {
        let total = &mut self.total;
        let mut ran = 0;
        self.cache.sample_each(listed, |cache, tid| {
            let before = total.run_ns;
            sample_thread(cache, tid, total)?;
            ran += usize::from(total.run_ns > before);
            Ok(())
        })?;
        self.ran = ran;
        Ok(self.total)
    }
}

fn sample_thread(cache: &mut Cache<Thread>, tid: u32, total: &mut SchedStat) -> Result<(), KernelError> {
    let mut buffer = [0; 96];
    if let Some(thread) = cache.known.get_mut(&tid) {
        let now = read_schedstat(&cache.root, tid, &thread.source, &mut buffer)?;
        total.add(thread.last, now);
        thread.last = now;
        return Ok(());
    }
    // The thread's own file: that of the process sums over all threads.
    let is_newer = cache.is_newer(&format!("/proc/{tid}/task/{tid}/stat"))?;
    let source = cache.budget.open(&cache.root, &format!("/proc/{tid}/schedstat"))?;
    match read_schedstat(&cache.root, tid, &source, &mut buffer) {
        Ok(now) => {
            total.add(if is_newer { SchedStat::default() } else { now }, now);
            cache.known.insert(tid, Thread { source, last: now });
            Ok(())
        }
        Err(error) => {
            cache.budget.release(&source);
            Err(error)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tid_used_again_counts_from_zero() {
        let mut total = SchedStat::default();
        let at = |n| SchedStat { run_ns: n, delay_ns: n, switches: n };
        total.add(at(10), at(15));
        total.add(at(15), at(3));
        assert_eq!(total.run_ns, 8);
    }
}
