//! What one workload consumed: CPU time, waiting, context switches, bytes; monotonic although threads come and
//! go.

mod accounting;
mod members;
mod tasks;

pub use accounting::Throttling;
pub use members::{MemberList, Members};
pub use tasks::{Owner, process_times};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::{KernelError, Root};
use accounting::CpuAccounting;
use members::MemberLister;
use tasks::{FileBudget, Processes, Threads};

/// What a workload consumed since the sensor's first sample. Never decreases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WorkloadCounters {
    /// Time on a CPU, to the nanosecond (`sum_exec_runtime`).
    pub cpu_time: Duration,
    /// Time runnable but waiting for a CPU: high if the active set is too small.
    pub run_delay: Duration,
    /// How often a thread was put on a CPU: `pcount` of schedstat. It counts the same events as voluntary +
    /// involuntary context switches in `/proc/TID/status`, but comes with the two times above in one read, at a
    /// tenth of the cost.
    pub switches: u64,
    /// Time in user mode. The kernel splits the exact total by sampling at ticks, so over short intervals it is
    /// only as precise as the tick.
    pub user_time: Duration,
    /// Time in kernel mode; as precise as [`WorkloadCounters::user_time`].
    pub system_time: Duration,
    /// Bytes through `read`- and `write`-like calls on files, pipes and, for those two calls, sockets (`rchar` plus
    /// `wchar`); excludes `send` and `recv`. `None` if the kernel does not count them, or refused access for
    /// one of the processes, so that the sum would be wrong.
    pub moved_bytes: Option<u64>,
    /// Calls like `write` (`syscw`), known where [`WorkloadCounters::moved_bytes`] is.
    pub write_calls: Option<u64>,
    /// Threads at this sample.
    pub threads: u32,
    /// Threads that ran since the sample before, of those.
    pub ran: u32,
    /// Processes at this sample; 0 when the workload has ended.
    pub processes: u32,
    /// CPU time that taking this sample cost the caller.
    pub sample_cost: Duration,
}

/// Samples the counters of one workload.
///
/// A sample lists the threads and reads one short file per thread, so its cost is linear in them. Orders of
/// magnitude on a 2-vCPU KVM guest, per thread: 1 us if the file is open and the system has created no task
/// lately (a tree is not listed again then; else 2 us), 9 us beyond [`WorkloadSensor::OPEN_FILES`], and 20 us
/// when the thread is first seen. 500 threads: 0.4-2.5 ms; 2000: 11 ms. Pace samples by
/// [`WorkloadCounters::sample_cost`].
///
/// What a thread did between the last sample and its end is lost, except for user and system time (a process
/// keeps those of its dead threads, and a cgroup those of its dead processes).
#[derive(Debug)]
pub struct WorkloadSensor {
    root: Root,
    lister: MemberLister,
    threads: Threads,
    processes: Processes,
    accounting: Option<CpuAccounting>,
    /// Groups whose quotas apply to the workload.
    quotas: Vec<PathBuf>,
}

impl WorkloadSensor {
    /// The most files kept open; limited to half of `RLIMIT_NOFILE`.
    pub const OPEN_FILES: usize = 1024;

    /// The most descriptors checked for a socket, which takes about a millisecond.
    pub const SEEN_DESCRIPTORS: usize = 500;

    /// A sensor without an accounting directory: user and system time are summed over processes.
    ///
    /// # Errors
    /// The workload's cgroup or process does not exist.
    pub fn new(root: &Root, members: Members) -> Result<Self, KernelError> {
        Self::with_open_files(root, members, Self::OPEN_FILES)
    }

    fn with_open_files(root: &Root, members: Members, limit: usize) -> Result<Self, KernelError> {
        let quotas = match &members {
            Members::Cgroup(dir) => vec![dir.clone()],
            Members::Tree(_) | Members::Family(_) | Members::Several(_) => Vec::new(),
        };
        let mut files = FileBudget::new(limit);
        let process_files = files.split(4);
        Ok(Self {
            root: root.clone(),
            lister: MemberLister::new(root, members)?,
            threads: Threads::new(root, files),
            processes: Processes::new(root, process_files),
            accounting: None,
            quotas,
        })
    }

    /// A sensor for what all of these are for, and for the quotas of each.
    ///
    /// # Errors
    /// The cgroup or process of one of them does not exist any more.
    pub fn together(root: &Root, parts: &[&Self]) -> Result<Self, KernelError> {
        let members = parts.iter().map(|part| part.members().clone()).collect();
        let quotas: BTreeSet<PathBuf> = parts.iter().flat_map(|part| part.quotas.clone()).collect();
        Ok(Self::new(root, Members::Several(members))?.with_quotas(quotas.into_iter().collect()))
    }

    /// Takes user and system time from `dir`, in one read for any number of processes: a directory of the v1
    /// `cpuacct` controller, or of the v2 hierarchy. It must contain this workload and nothing else.
    ///
    /// # Errors
    /// `dir` has neither `cpuacct.stat` nor a `cpu.stat` with `user_usec`.
    pub fn with_accounting(mut self, dir: &Path) -> Result<Self, KernelError> {
        self.accounting = Some(CpuAccounting::open(&self.root, dir)?);
        Ok(self)
    }

    /// Sets the directories that [`WorkloadSensor::throttled`] reads, of the v1 `cpu` controller or of the v2
    /// hierarchy, see [`CgroupSetup::quota_dirs`](crate::cgroup::CgroupSetup::quota_dirs). The default is the
    /// directory of [`Members::Cgroup`] alone.
    #[must_use]
    pub fn with_quotas(mut self, dirs: Vec<PathBuf>) -> Self {
        self.quotas = dirs;
        self
    }

    /// The present counters. The first call is the baseline: all zero except for threads, processes and cost.
    ///
    /// # Errors
    /// The cgroup no longer exists, or a file is malformed. Threads and processes that end meanwhile are
    /// skipped.
    pub fn sample(&mut self) -> Result<WorkloadCounters, KernelError> {
        let start = Instant::now();
        let listing = self.lister.list()?;
        let cpu_times = self.accounting.is_none();
        let processes = self.processes.sample(&listing.processes, cpu_times)?;
        let threads = self.threads.sample(&listing.threads)?;
        let (user_time, system_time) = match &mut self.accounting {
            Some(accounting) => accounting.read()?,
            None => (processes.user, processes.system),
        };
        Ok(WorkloadCounters {
            cpu_time: Duration::from_nanos(threads.run_ns),
            run_delay: Duration::from_nanos(threads.delay_ns),
            switches: threads.switches,
            user_time,
            system_time,
            moved_bytes: processes.io.map(|io| io.bytes),
            write_calls: processes.io.map(|io| io.writes),
            threads: count(self.threads.len()),
            ran: count(self.threads.ran()),
            processes: count(self.processes.len()),
            sample_cost: start.elapsed(),
        })
    }

    /// What makes up the workload.
    pub fn members(&self) -> &Members {
        self.lister.members()
    }

    /// Whether the workload's cgroups still exist; they are removed only without processes. True for a process.
    pub fn exists(&self) -> bool {
        self.lister.exists()
    }

    /// The workload's present processes by PID, ascending.
    ///
    /// # Errors
    /// The workload's cgroup no longer exists.
    pub fn processes(&mut self) -> Result<Vec<u32>, KernelError> {
        Ok(self.lister.list()?.processes.clone())
    }

    /// The workload's present threads by TID, ascending.
    pub fn threads(&mut self) -> Result<Vec<u32>, KernelError> {
        Ok(self.lister.list()?.threads.clone())
    }

    /// Whether one of the workload's processes has an open socket, by `/proc/PID/fd`. Assumed beyond the first
    /// [`WorkloadSensor::SEEN_DESCRIPTORS`] descriptors; a process whose descriptors are not readable counts as
    /// having none.
    ///
    /// # Errors
    /// The workload's control group no longer exists.
    pub fn has_sockets(&mut self) -> Result<bool, KernelError> {
        let processes = &self.lister.list()?.processes;
        Ok(tasks::have_sockets(&self.root, processes, Self::SEEN_DESCRIPTORS))
    }

    /// How often and how long quotas throttled the workload, including those of the groups above it; `None` if
    /// no group counts that.
    ///
    /// # Errors
    /// A file is not readable or malformed.
    pub fn throttled(&self) -> Result<Option<Throttling>, KernelError> {
        let mut all: Option<Throttling> = None;
        for dir in &self.quotas {
            if let Some(one) = Throttling::read(&self.root, dir)? {
                all = Some(all.unwrap_or_default().plus(one));
            }
        }
        Ok(all)
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
