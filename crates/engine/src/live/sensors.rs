//! Observes this machine: differences between two readings of the kernel's counters.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use gleaner_kernel::Root;
use gleaner_kernel::idle::{IdleCounters, IdleSensor};
use gleaner_kernel::lever::yield_threads::YieldThreads;
use gleaner_kernel::stat::StatSensor;
use gleaner_kernel::workload::{WorkloadCounters, WorkloadSensor};
use gleaner_policy::{CpuId, CpuSet, Observation, VcpuInterval, WorkloadInterval};
use nix::time::{ClockId, clock_gettime};

use super::LiveError;
use super::counter::CounterReader;
use super::sockets::Traffic;
use super::waiting::Waits;

#[derive(Debug)]
pub(super) struct Sensors {
    idle: IdleSensor,
    stat: StatSensor,
    workload: WorkloadSensor,
    counter: Option<CounterReader>,
    waits: Waits,
    traffic: Traffic,
    allowed: CpuSet,
    start: Instant,
    last: Reading,
}

/// One reading of all counters.
#[derive(Debug, Clone)]
struct Reading {
    at: Duration,
    vcpus: BTreeMap<CpuId, VcpuCounters>,
    workload: WorkloadCounters,
    throttled: Duration,
    counter: Option<f64>,
}

/// The counters of one vCPU.
#[derive(Debug, Clone, Copy, Default)]
struct VcpuCounters {
    halts: u64,
    halt_time: Duration,
    polls: u64,
    poll_time: Duration,
    steal: Duration,
}

impl Sensors {
    pub(super) fn new(
        root: &Root,
        workload: WorkloadSensor,
        counter: Option<CounterReader>,
        (waits, traffic): (Waits, Traffic),
        allowed: CpuSet,
    ) -> Result<Self, LiveError> {
        let mut sensors = Self {
            idle: IdleSensor::new(root)?,
            stat: StatSensor::new(root)?,
            workload,
            counter: None,
            waits,
            traffic,
            allowed,
            start: Instant::now(),
            last: Reading {
                at: Duration::ZERO,
                vcpus: BTreeMap::new(),
                workload: WorkloadCounters::default(),
                throttled: Duration::ZERO,
                counter: None,
            },
        };
        sensors.last = sensors.read(None, None)?;
        // First read with the first observation, so that a counter that does not answer cannot delay the start.
        sensors.counter = counter;
        Ok(sensors)
    }

    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Runnable threads on the machine, this one excluded.
    pub(super) fn runnable(&self) -> Result<u32, LiveError> {
        Ok(self.stat.runnable()?.saturating_sub(1))
    }

    /// Total time for which the workload's threads have waited for a vCPU.
    pub(super) fn run_delay(&mut self) -> Result<Duration, LiveError> {
        Ok(self.workload.sample()?.run_delay)
    }

    /// The workload's processes at the last reading.
    pub(super) fn processes(&self) -> u32 {
        self.last.workload.processes
    }

    /// Whether the workload can still be sampled.
    pub(super) fn has_workload(&self) -> bool {
        self.workload.exists()
    }

    pub(super) fn threads(&mut self) -> Result<Vec<u32>, LiveError> {
        Ok(self.workload.threads()?)
    }

    pub(super) fn waits(&mut self) -> &mut Waits {
        &mut self.waits
    }

    /// Total halts by vCPU.
    pub(super) fn read_halts(&mut self) -> Result<Vec<(CpuId, u64)>, LiveError> {
        Ok(self.idle.read()?.iter().map(|idle| (idle.cpu, idle.halts)).collect())
    }

    /// Takes the sentences about sensors for the journal.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        let of_counter = self.counter.as_mut().map(CounterReader::take_notes).unwrap_or_default();
        let others = [self.waits.take_note(), self.traffic.take_note()];
        others.into_iter().flatten().chain(of_counter).collect()
    }

    /// The interval since the last call; `settled` is left true for the caller to correct. Waits for a progress
    /// counter until one of `urgent` is readable; `None` means that the run is over and nothing is waited for.
    pub(super) fn observe(
        &mut self,
        yields: Option<&YieldThreads>,
        urgent: Option<&[BorrowedFd<'_>]>,
    ) -> Result<Observation, LiveError> {
        let cost = thread_cpu_time();
        let runnable = self.runnable()?;
        let now = self.read(yields, urgent)?;
        let last = std::mem::replace(&mut self.last, now);
        let now = &self.last;
        let period = now.at.saturating_sub(last.at);
        let throttled = now.throttled.saturating_sub(last.throttled);
        let vcpus: Vec<VcpuInterval> =
            now.vcpus.iter().map(|(cpu, v)| v.since(last.vcpus.get(cpu), *cpu)).collect();
        let mut workload = workload_interval(&last, now);
        workload.waiting = Some(self.waits.observe(&workload, &vcpus));
        let has_sockets = || self.workload.has_sockets().unwrap_or(false);
        let writes = now.workload.write_calls.zip(last.workload.write_calls);
        let writes = writes.map(|(b, a)| b.saturating_sub(a));
        self.traffic.observe(period, &mut workload, writes, has_sockets);
        Ok(Observation {
            at: now.at,
            period,
            vcpus,
            workload,
            runnable,
            overload: None,
            throttled: (throttled.as_secs_f64() / period.as_secs_f64().max(1e-6)).min(1.0),
            settled: true,
            cost: thread_cpu_time().saturating_sub(cost),
        })
    }

    fn read(
        &mut self,
        yields: Option<&YieldThreads>,
        urgent: Option<&[BorrowedFd<'_>]>,
    ) -> Result<Reading, LiveError> {
        let workload = self.workload.sample()?;
        // A counter that cannot be read (yet: the program might just have started) is a missing signal.
        let counter = self.counter.as_mut().and_then(|counter| match urgent {
            Some(urgent) => counter.read(urgent),
            None => counter.read_at_the_end(),
        });
        let throttled = self.workload.throttled()?.map_or(Duration::ZERO, |t| t.time);
        let stat = self.stat.read()?;
        let idle = self.idle.read()?;
        let mut vcpus: BTreeMap<CpuId, VcpuCounters> = stat
            .cpus
            .iter()
            .filter(|(cpu, _)| self.allowed.contains(*cpu))
            .map(|(cpu, times)| (*cpu, VcpuCounters { steal: times.steal, ..VcpuCounters::default() }))
            .collect();
        for counters in &idle {
            if let Some(vcpu) = vcpus.get_mut(&counters.cpu) {
                vcpu.idle(counters);
            }
        }
        // A yield thread's CPU time is retained idle time; each time it lost the vCPU ended one idle period.
        for (cpu, stats) in yields.map(YieldThreads::stats).unwrap_or_default() {
            if let Some(vcpu) = vcpus.get_mut(&cpu) {
                vcpu.polls += stats.switches;
                vcpu.poll_time += stats.cpu_time;
            }
        }
        Ok(Reading { at: self.start.elapsed(), vcpus, workload, throttled, counter })
    }
}

impl VcpuCounters {
    fn idle(&mut self, counters: &IdleCounters) {
        self.halts = counters.halts;
        self.halt_time = counters.halt_time;
        self.polls += counters.polls;
        self.poll_time += counters.poll_time;
    }

    /// The difference to `last`; empty for a vCPU that is new or whose counters were reset.
    fn since(&self, last: Option<&Self>, cpu: CpuId) -> VcpuInterval {
        let last = last.unwrap_or(self);
        VcpuInterval {
            cpu,
            halts: self.halts.saturating_sub(last.halts),
            halt_time: self.halt_time.saturating_sub(last.halt_time),
            polls: self.polls.saturating_sub(last.polls),
            poll_time: self.poll_time.saturating_sub(last.poll_time),
            steal: self.steal.saturating_sub(last.steal),
        }
    }
}

fn workload_interval(last: &Reading, now: &Reading) -> WorkloadInterval {
    let (a, b) = (&last.workload, &now.workload);
    WorkloadInterval {
        cpu_time: b.cpu_time.saturating_sub(a.cpu_time),
        user_time: b.user_time.saturating_sub(a.user_time),
        run_delay: b.run_delay.saturating_sub(a.run_delay),
        switches: b.switches.saturating_sub(a.switches),
        moved_bytes: b.moved_bytes.zip(a.moved_bytes).map(|(b, a)| b.saturating_sub(a)),
        counter: now.counter.zip(last.counter).map(|(b, a)| (b - a).max(0.0)),
        threads: b.threads,
        waiting: None,
        sockets: None,
    }
}

/// CPU time of the calling thread.
pub(super) fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
