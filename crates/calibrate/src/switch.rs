//! Applies one retention method after another, under leases.

use std::thread;
use std::time::{Duration, Instant};

use gleaner_engine::{LeaseBook, LeaseError, Outcome};
use gleaner_kernel::idle::{IdleSensor, IdleSource};
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::lever::sched_policy::Batch;
use gleaner_kernel::lever::yield_threads::{YieldKind, YieldThreads};
use gleaner_kernel::lever::{Target, ThreadKey, Write, haltpoll, pm_qos};
use gleaner_kernel::stat::StatSensor;
use gleaner_kernel::{KernelError, Root};
use gleaner_policy::{CpuId, CpuSet, Method};

/// Far longer than the gap between two measured wake-ups, so that no measured idle period outlasts it.
const POLL_LIMIT: Duration = Duration::from_micros(200);
/// Halving the poll limit at each halt clears it within 18 halts.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(60);

/// The applied method and what keeps it in effect.
pub(super) struct MethodSwitch {
    book: LeaseBook,
    vcpus: CpuSet,
    available: Vec<Method>,
    /// The measuring thread.
    caller: ThreadKey,
    /// The haltpoll limit that we have set, if any.
    polls: Option<Duration>,
    yields: Option<YieldThreads>,
    stat: StatSensor,
    samples: u32,
    /// Samples that found other programs running.
    disturbed: u32,
}

impl MethodSwitch {
    pub(super) fn new(
        book: LeaseBook,
        vcpus: CpuSet,
        available: Vec<Method>,
        caller: ThreadKey,
    ) -> anyhow::Result<Self> {
        let stat = StatSensor::new(book.root())?;
        Ok(Self { book, vcpus, available, caller, polls: None, yields: None, stat, samples: 0, disturbed: 0 })
    }

    /// Share of the switches (0..=1) at which other programs were running.
    pub(super) fn disturbed(&self) -> f64 {
        f64::from(self.disturbed) / f64::from(self.samples.max(1))
    }

    /// Applies `method` in place of the previous one. False if it is not available.
    pub(super) fn switch_to(&mut self, method: Method) -> anyhow::Result<bool> {
        if !self.available.contains(&method) {
            return Ok(false);
        }
        self.yields = None;
        self.samples += 1;
        self.disturbed += u32::from(!self.is_alone()?);
        self.book.reset(&Target::Scheduling(self.caller))?;
        self.poll_on_request(method == Method::QosPoll)?;
        self.poll_up_to(if method == Method::Haltpoll { POLL_LIMIT } else { Duration::ZERO })?;
        match method {
            Method::Yield => self.start(YieldKind::Classic)?,
            Method::YieldIpiFree => {
                // The caller starts the measuring threads, which inherit its policy.
                let plan = Batch::new().plan(self.book.root(), &[self.caller])?;
                self.set(&plan.writes)?;
                self.start(YieldKind::IpiFree)?;
            }
            Method::Halt | Method::Haltpoll | Method::QosPoll => {}
        }
        Ok(true)
    }

    /// Whether nothing but the caller runs. The measuring threads have been joined, but the kernel still counts a
    /// thread for some microseconds after that.
    fn is_alone(&self) -> Result<bool, KernelError> {
        const EXIT_DELAY: Duration = Duration::from_millis(1);
        let started = Instant::now();
        while self.stat.runnable()? > 1 {
            if started.elapsed() > EXIT_DELAY {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Restores everything.
    pub(super) fn close(mut self) -> Vec<Outcome> {
        self.yields = None;
        self.book.close()
    }

    fn set(&mut self, writes: &[Write]) -> Result<(), LeaseError> {
        writes.iter().try_for_each(|write| self.book.set(write))
    }

    fn start(&mut self, kind: YieldKind) -> anyhow::Result<()> {
        let yields = YieldThreads::start(&self.vcpus, kind)?;
        yields.set_limit(POLL_LIMIT);
        yields.set_active(&self.vcpus);
        self.yields = Some(yields);
        Ok(())
    }

    fn poll_on_request(&mut self, on: bool) -> Result<(), LeaseError> {
        if !self.available.contains(&Method::QosPoll) {
            return Ok(());
        }
        let polling = if on { self.vcpus.clone() } else { CpuSet::new() };
        let (requests, free) = pm_qos::writes(&polling, &self.vcpus);
        self.set(&requests)?;
        free.into_iter().try_for_each(|path| self.book.reset(&Target::File(path)))
    }

    fn poll_up_to(&mut self, limit: Duration) -> anyhow::Result<()> {
        if !self.available.contains(&Method::Haltpoll) || self.polls == Some(limit) {
            return Ok(());
        }
        let in_force = if limit.is_zero() { POLL_LIMIT } else { Duration::ZERO };
        self.set(&haltpoll::writes(limit, in_force, false))?;
        self.polls = Some(limit);
        if limit.is_zero() { self.drain() } else { Ok(()) }
    }

    /// Makes every vCPU halt until its learned poll limit is gone.
    fn drain(&self) -> anyhow::Result<()> {
        let root = self.book.root();
        thread::scope(|scope| {
            let drains: Vec<_> = self.vcpus.iter().map(|cpu| scope.spawn(move || drain(root, cpu))).collect();
            drains.into_iter().try_for_each(|handle| match handle.join() {
                Ok(drained) => drained,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        Ok(())
    }
}

/// Makes short idle periods on `cpu` until it halts without polling first. Gives up after [`DRAIN_TIMEOUT`]: a busy
/// vCPU has no idle periods and keeps its limit.
fn drain(root: &Root, cpu: CpuId) -> Result<(), KernelError> {
    const IDLE_PERIOD: Duration = Duration::from_millis(1);
    const NO_POLLING: Duration = Duration::from_micros(2);
    let mut sensor = IdleSensor::new(root)?;
    // If this fails, `cpu` loses its limit at its own later idle periods.
    let _ = Affinity::set_caller(&[cpu].into_iter().collect());
    let mut counters = || -> Result<_, KernelError> {
        let all = sensor.read()?;
        Ok(all.into_iter().find(|c| c.cpu == cpu && c.source == IdleSource::Cpuidle))
    };
    let started = Instant::now();
    let mut before = counters()?;
    while started.elapsed() < DRAIN_TIMEOUT {
        thread::sleep(IDLE_PERIOD);
        let now = counters()?;
        let (Some(b), Some(n)) = (before, now) else { break };
        let polled = n.poll_time.saturating_sub(b.poll_time);
        if n.halts > b.halts && polled <= NO_POLLING {
            break;
        }
        before = now;
    }
    Ok(())
}
