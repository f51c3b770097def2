//! State of each thread or process between two samples, and the files that stay open for it.

use std::collections::HashMap;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use nix::time::{ClockId, clock_gettime};

use super::ProcessStat;
use crate::file::KernelFile;
use crate::stat::user_tick;
use crate::{KernelError, Root};

/// How many more files can be kept open.
#[derive(Debug)]
pub(in crate::workload) struct FileBudget {
    left: usize,
}

impl FileBudget {
    /// At most `limit`, and at most half of the process's limit: the rest is for the program around it.
    pub(in crate::workload) fn new(limit: usize) -> Self {
        let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Self { left: limit.min(usize::try_from(soft / 2).unwrap_or(limit)) }
    }

    /// Splits off `1/parts` of the budget.
    pub(in crate::workload) fn split(&mut self, parts: usize) -> Self {
        let left = self.left / parts;
        self.left -= left;
        Self { left }
    }

    pub(super) fn open(&mut self, root: &Root, path: &str) -> Result<Source, KernelError> {
        let file = KernelFile::open(root, path)?;
        if self.left == 0 {
            return Ok(Source::ByPath(path.to_owned()));
        }
        self.left -= 1;
        Ok(Source::Open(file))
    }

    pub(super) fn release(&mut self, source: &Source) {
        self.left += usize::from(source.is_open());
    }
}

/// A file that is read at each sample.
#[derive(Debug)]
pub(super) enum Source {
    Open(KernelFile),
    /// Opened for each read, beyond the budget.
    ByPath(String),
}

impl Source {
    pub(super) fn read<'b>(&self, root: &Root, buffer: &'b mut [u8]) -> Result<&'b str, KernelError> {
        match self {
            Self::Open(file) => file.read_short(buffer),
            Self::ByPath(path) => KernelFile::open(root, path)?.read_short(buffer),
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }
}

/// A thread or process in a [`Cache`].
pub(super) trait Task: Sized {
    /// Called when it has ended or left the workload: releases its files, and accounts for what the kernel adds
    /// to others.
    fn end(self, cache: &mut Cache<Self>);
}

/// The present tasks of one kind.
#[derive(Debug)]
pub(super) struct Cache<T> {
    pub(super) root: Root,
    pub(super) budget: FileBudget,
    pub(super) known: HashMap<u32, T>,
    last_sample: LastSample,
}

impl<T: Task> Cache<T> {
    pub(super) fn new(root: &Root, budget: FileBudget) -> Self {
        Self { root: root.clone(), budget, known: HashMap::new(), last_sample: LastSample::default() }
    }

    /// Calls `sample` for each of the `listed` tasks, which must be ascending. Drops tasks that are not listed
    /// any more, or that ended before they were read.
    pub(super) fn sample_each(
        &mut self,
        listed: &[u32],
        mut sample: impl FnMut(&mut Self, u32) -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        let now = now_ticks();
        let left: Vec<u32> =
            self.known.keys().copied().filter(|id| listed.binary_search(id).is_err()).collect();
        for id in left {
            self.drop_task(id);
        }
        for &id in listed {
            match sample(self, id) {
                Err(error) if error.is_gone() => self.drop_task(id),
                result => result?,
            }
        }
        self.last_sample = LastSample(Some(now));
        Ok(())
    }

    fn drop_task(&mut self, id: u32) {
        if let Some(task) = self.known.remove(&id) {
            task.end(self);
        }
    }

    /// Whether the task with the `stat` file `path` started since the last sample; true for the same tick.
    pub(super) fn is_newer(&self, path: &str) -> Result<bool, KernelError> {
        match self.last_sample.0 {
            None => Ok(false),
            Some(last) => Ok(ProcessStat::read_at(&self.root, path)?.start_ticks >= last),
        }
    }
}

/// Start of the last sample, in ticks. Tasks started since then count from their start, older ones (moved into
/// the cgroup) from their first sample. `None` before the first sample, which is the baseline of all.
#[derive(Debug, Default)]
struct LastSample(Option<u64>);

/// The time since boot in the unit of [`ProcessStat::start_ticks`].
fn now_ticks() -> u64 {
    // The clock exists since Linux 2.6.39. Zero would count a new task's whole past, never less.
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_nanos() / user_tick().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_and_start_times_agree() {
        let me = ProcessStat::read(&Root::system(), std::process::id()).unwrap();
        assert!(me.start_ticks <= now_ticks() && now_ticks() - me.start_ticks < 360_000, "within the hour");
    }
}
