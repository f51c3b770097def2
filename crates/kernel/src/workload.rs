//! What one workload consumed: CPU time, waiting, context switches, bytes; monotonic although threads come and go.

mod accounting;
mod members;
mod tasks;

pub use accounting::Throttling;
pub use members::Members;
pub use tasks::{Owner, process_times};

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::{KernelError, Root};
use accounting::CpuAccounting;
use members::Lister;
use tasks::{FileBudget, Processes, Threads};

/// What a workload consumed since the sensor's first sample. Never decreases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WorkloadCounters {
    /// Time on a CPU, to the nanosecond (`sum_exec_runtime`).
    pub cpu_time: Duration,
    /// Time runnable but waiting for a CPU: the sign that the active set is too small.
    pub run_delay: Duration,
    /// How often a thread was put on a CPU. This is `pcount` of schedstat, which counts the same events as
    /// voluntary + involuntary context switches in `/proc/TID/status` (2000 of 2000 in a test of 2000 sleeps),
    /// but comes with the two times above in one read at a tenth of the cost.
    pub switches: u64,
    /// Time in user mode. The kernel divides the exact total by what the ticks hit, so over short spans it is
    /// only as fine as the tick.
    pub user_time: Duration,
    /// Time in kernel mode; see [`WorkloadCounters::user_time`].
    pub system_time: Duration,
    /// Bytes through `read`- and `write`-like calls on files, pipes and, for those two calls, sockets
    /// (`rchar` + `wchar`). `send` and `recv` are not in it. `None` where the kernel does not count it, or
    /// refused it for one of the processes: the sum would be wrong.
    pub moved_bytes: Option<u64>,
    /// Threads at this sample.
    pub threads: u32,
    /// Processes at this sample; 0 when the workload has ended.
    pub processes: u32,
    /// What taking this sample cost the caller.
    pub sample_cost: Duration,
}

/// Samples the counters of one workload.
///
/// A sample lists the threads and reads one short file for each, so its cost is linear in them. Measured orders of
/// magnitude on a 2-vCPU KVM guest, per thread: 1 us where the file is open and no task was created in the system
/// lately (a tree is then not listed anew; else 2 us), 9 us beyond [`WorkloadSensor::OPEN_FILES`], and
/// 20 us when the thread is first seen. 500 threads: 0.4-2.5 ms; 2000: 11 ms.
/// [`WorkloadCounters::sample_cost`] tells what it was; pace the samples by it.
///
/// What a thread did between the last sample and its end is lost, except from user and system time (a process
/// keeps its dead threads' times there, and a cgroup its dead processes').
#[derive(Debug)]
pub struct WorkloadSensor {
    root: Root,
    lister: Lister,
    threads: Threads,
    processes: Processes,
    accounting: Option<CpuAccounting>,
    /// Groups whose quotas hold for the workload.
    quotas: Vec<PathBuf>,
}

impl WorkloadSensor {
    /// The most files kept open; fewer where half of `RLIMIT_NOFILE` is less.
    pub const OPEN_FILES: usize = 1024;

    /// So many descriptors are looked at for a socket: about a millisecond.
    pub const SEEN_DESCRIPTORS: usize = 500;

    /// A sensor without accounting directory: user and system time are summed over processes.
    ///
    /// # Errors
    /// Where the workload's cgroup or process does not exist.
    pub fn new(root: &Root, members: Members) -> Result<Self, KernelError> {
        Self::with_open_files(root, members, Self::OPEN_FILES)
    }

    fn with_open_files(root: &Root, members: Members, limit: usize) -> Result<Self, KernelError> {
        let quotas = match &members {
            Members::Cgroup(dir) => vec![dir.clone()],
            Members::Tree(_) => Vec::new(),
        };
        let mut files = FileBudget::new(limit);
        let process_files = files.split(4);
        Ok(Self {
            root: root.clone(),
            lister: Lister::new(root, members)?,
            threads: Threads::new(root, files),
            processes: Processes::new(root, process_files),
            accounting: None,
            quotas,
        })
    }

    /// Takes user and system time from `dir`, in one read whatever the number of processes: a directory of the
    /// v1 `cpuacct` controller, or of the v2 hierarchy. It must hold this workload and nothing else.
    ///
    /// # Errors
    /// Where `dir` has neither `cpuacct.stat` nor a `cpu.stat` with `user_usec`.
    pub fn with_accounting(mut self, dir: &Path) -> Result<Self, KernelError> {
        self.accounting = Some(CpuAccounting::open(&self.root, dir)?);
        Ok(self)
    }

    /// Where [`WorkloadSensor::throttled`] looks: directories of the v1 `cpu` controller or of the v2 hierarchy, see
    /// [`CgroupSetup::quota_dirs`](crate::cgroup::CgroupSetup::quota_dirs). Without this: the directory of
    /// [`Members::Cgroup`] alone.
    #[must_use]
    pub fn with_quotas(mut self, dirs: Vec<PathBuf>) -> Self {
        self.quotas = dirs;
        self
    }

    /// The counters now. The first call is the baseline: all zero but for threads, processes and cost.
    ///
    /// # Errors
    /// Where the cgroup is gone, or a file is not understood. Threads and processes that end meanwhile are skipped.
    pub fn sample(&mut self) -> Result<WorkloadCounters, KernelError> {
        let begin = Instant::now();
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
            moved_bytes: processes.moved_bytes,
            threads: count(self.threads.len()),
            processes: count(self.processes.len()),
            sample_cost: begin.elapsed(),
        })
    }

    /// Whether the workload's cgroup is still there; it is removed only without processes. True for a process.
    pub fn exists(&self) -> bool {
        self.lister.exists()
    }

    /// The workload's threads at this moment, by TID, ascending.
    pub fn threads(&mut self) -> Result<Vec<u32>, KernelError> {
        Ok(self.lister.list()?.threads.clone())
    }

    /// Whether one of the workload's processes has a socket open, as `/proc/PID/fd` tells. Beyond the first
    /// [`WorkloadSensor::SEEN_DESCRIPTORS`] descriptors it is taken for granted; of a process that does not let us look
    /// into its own, nothing is.
    ///
    /// # Errors
    /// The workload's control group is gone.
    pub fn has_sockets(&mut self) -> Result<bool, KernelError> {
        let processes = &self.lister.list()?.processes;
        Ok(tasks::have_sockets(&self.root, processes, Self::SEEN_DESCRIPTORS))
    }

    /// How often and how long quotas stopped the workload, those of the groups above it included; `None` where no group
    /// counts one.
    ///
    /// # Errors
    /// A file is not to be read or understood.
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
