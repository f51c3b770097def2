//! Yield threads: one thread per vCPU that keeps it from halting for a bounded time (paper §6).
//!
//! They are threads of our own process and end with it, however it ends: the kernel itself is the lease.

mod pace;

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::thread::JoinHandleExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gleaner_policy::{CpuId, CpuSet};

use super::thread::{set_affinity, set_scheduling};
use super::{SchedAttr, SchedPolicy};
use pace::{Pace, Step};

/// The policy of a thread that is about to end, whatever it had before.
const EXITING_ATTR: SchedAttr =
    SchedAttr { policy: SchedPolicy::Other, nice: 0, rt_priority: 0, reset_on_fork: false };

/// How often a thread yields at its start, to learn how long a yield takes.
const CALIBRATION_YIELDS: usize = 64;

/// The scheduling policy of the yield threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum YieldKind {
    /// `SCHED_IDLE`, as in the paper: every wake-up preempts it at once, which costs an IPI.
    Classic,
    /// `SCHED_OTHER` at nice 19: a wake-up of a `SCHED_BATCH` thread does not preempt it, so no IPI is sent;
    /// the yield thread steps aside at its next yield.
    IpiFree,
}

/// Counters of one vCPU's yield thread since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct YieldStats {
    /// Its CPU time (`T_yield`).
    pub cpu_time: Duration,
    /// Calls of `sched_yield`.
    pub yields: u64,
    /// Yields that returned immediately, since nothing else was runnable.
    pub immediate: u64,
    /// How often it reached the limit and slept.
    pub sleeps: u64,
    /// Yields in which another thread ran; each starts a new idle period (`S_yield`).
    pub switches: u64,
}

/// A yield thread could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} of vCPU {cpu}: {source}")]
pub struct StartError {
    cpu: CpuId,
    operation: &'static str,
    r#source: io::Error,
}

/// Shared by a thread and its owner. On its own pair of cache lines, since the threads write it all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shared {
    stop: AtomicBool,
    active: AtomicBool,
    limit_ns: AtomicU64,
    yields: AtomicU64,
    immediate: AtomicU64,
    sleeps: AtomicU64,
    switches: AtomicU64,
}

/// Increments a counter that only the calling thread writes, without a locked instruction.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

#[derive(Debug)]
struct YieldThread {
    cpu: CpuId,
    tid: u32,
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

/// The yield threads of a machine. Dropping stops and joins them.
#[derive(Debug)]
pub struct YieldThreads {
    threads: Vec<YieldThread>,
}

impl YieldThreads {
    /// Starts one thread, `gleaner-yield/N`, on each vCPU of `cpus`. All sleep until
    /// [`YieldThreads::set_active`] and a limit above zero wake them.
    ///
    /// # Errors
    /// A thread cannot be created, or its vCPU is offline or outside the caller's cpuset. No thread is left
    /// running then.
    pub fn start(cpus: &CpuSet, kind: YieldKind) -> Result<Self, StartError> {
        let mut threads = Self { threads: Vec::with_capacity(cpus.len()) };
        for cpu in cpus.iter() {
            threads.threads.push(YieldThread::start(cpu, kind)?);
        }
        Ok(threads)
    }

    /// Wakes the threads of the active vCPUs and puts all others to sleep.
    pub fn set_active(&self, active: &CpuSet) {
        for thread in &self.threads {
            thread.shared.active.store(active.contains(thread.cpu), Relaxed);
            thread.unpark();
        }
    }

    /// Sets how long an idle vCPU is kept from halting. Zero puts the threads to sleep.
    pub fn set_limit(&self, limit: Duration) {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        for thread in &self.threads {
            thread.shared.limit_ns.store(limit_ns, Relaxed);
            thread.unpark();
        }
    }

    /// The counters of each thread, by vCPU.
    pub fn stats(&self) -> Vec<(CpuId, YieldStats)> {
        self.threads.iter().map(|thread| (thread.cpu, thread.stats())).collect()
    }

    /// Stops and joins the threads, like dropping.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for YieldThreads {
    fn drop(&mut self) {
        for thread in &self.threads {
            thread.shared.stop.store(true, Relaxed);
            // At its own priority it could take seconds on a busy vCPU to notice. If raising it is not
            // permitted, the thread ends as soon as it runs.
            let _ = set_scheduling(thread.tid, EXITING_ATTR);
            thread.unpark();
        }
        for thread in &mut self.threads {
            if let Some(handle) = thread.handle.take() {
                // A panic of the thread was printed already and leaves nothing to undo.
                let _ = handle.join();
            }
        }
    }
}

impl YieldThread {
    fn start(cpu: CpuId, kind: YieldKind) -> Result<Self, StartError> {
        let error = |operation| move |source| StartError { cpu, operation, source };
        let shared = Arc::new(Shared::default());
        let (started, result) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        let handle = thread::Builder::new()
            .name(format!("gleaner-yield/{cpu}"))
            .spawn(move || {
                let settled = settle(cpu, kind).map(|()| nix::unistd::gettid().as_raw().unsigned_abs());
                let ready = settled.is_ok();
                // The receiver waits for this message.
                let _ = started.send(settled);
                if ready {
                    run(&theirs);
                }
            })
            .map_err(error("create the yield thread"))?;
        match result.recv() {
            Ok(Ok(tid)) => Ok(Self { cpu, tid, shared, handle: Some(handle) }),
            Ok(Err(source)) => Err(error("pin the yield thread")(source)),
            Err(_) => Err(error("start the yield thread")(io::Error::other("it ended at once"))),
        }
    }

    fn unpark(&self) {
        if let Some(handle) = &self.handle {
            handle.thread().unpark();
        }
    }

    fn stats(&self) -> YieldStats {
        YieldStats {
            cpu_time: self.handle.as_ref().map_or(Duration::ZERO, cpu_time),
            immediate: self.shared.immediate.load(Relaxed),
            sleeps: self.shared.sleeps.load(Relaxed),
            switches: self.shared.switches.load(Relaxed),
            // Read last because it is incremented first, so that it is never less than the other counters
            // together.
            yields: self.shared.yields.load(Relaxed),
        }
    }
}

/// Sets the calling thread's affinity and policy.
fn settle(cpu: CpuId, kind: YieldKind) -> io::Result<()> {
    // Signals are for threads that handle them.
    nix::sys::signal::SigSet::all().thread_block()?;
    set_affinity(0, &[cpu].into_iter().collect())?;
    let (policy, nice) = match kind {
        YieldKind::Classic => (SchedPolicy::Idle, 0),
        YieldKind::IpiFree => (SchedPolicy::Other, 19),
    };
    set_scheduling(0, SchedAttr { policy, nice, rt_priority: 0, reset_on_fork: false })
}

/// The loop of a yield thread. The flags need no memory ordering: whoever changes one unparks the thread.
fn run(shared: &Shared) {
    let mut pace: Option<Pace> = None;
    while !shared.stop.load(Relaxed) {
        let limit = Duration::from_nanos(shared.limit_ns.load(Relaxed));
        if limit.is_zero() || !shared.active.load(Relaxed) {
            thread::park();
            if let Some(pace) = &mut pace {
                pace.reset();
            }
            continue;
        }
        let pace = pace.get_or_insert_with(|| {
            // On a busy vCPU each yield takes a large part of a second, and stopping must not wait for all of
            // them.
            let goes_on = |_: &usize| !shared.stop.load(Relaxed);
            let first = (0..CALIBRATION_YIELDS).take_while(goes_on).map(|_| timed_yield());
            Pace::new(first.min().unwrap_or(Duration::MAX))
        });
        let took = timed_yield();
        count(&shared.yields);
        match pace.after(took, limit) {
            Step::Switched => count(&shared.switches),
            Step::Immediate => count(&shared.immediate),
            Step::Sleep(sleep) => {
                count(&shared.immediate);
                count(&shared.sleeps);
                thread::park_timeout(sleep);
            }
        }
    }
}

/// Yields once; returns how long that took.
fn timed_yield() -> Duration {
    let before = Instant::now();
    thread::yield_now();
    before.elapsed()
}

/// The CPU time of another thread.
fn cpu_time(handle: &JoinHandle<()>) -> Duration {
    let mut clock = 0;
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the thread has not been joined (we hold its handle), so its pthread_t is valid; both pointers
    // are. The time is read only after the second call has written it.
    unsafe {
        if libc::pthread_getcpuclockid(handle.as_pthread_t(), &raw mut clock) != 0
            || libc::clock_gettime(clock, time.as_mut_ptr()) != 0
        {
            return Duration::ZERO;
        }
        let time = time.assume_init();
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}
