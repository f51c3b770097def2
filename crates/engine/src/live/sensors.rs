//! Observes one workload: differences between two readings of the kernel's counters.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use gleaner_kernel::workload::{WorkloadCounters, WorkloadSensor};
use gleaner_policy::{CpuSet, Observation, Sense, WorkloadInterval};
use nix::time::{ClockId, clock_gettime};

use super::LiveError;
use super::counter::CounterReader;
use super::sockets::Traffic;
use super::vcpus::VcpuReading;
use super::waiting::Waits;

/// The sensors of one workload.
#[derive(Debug)]
pub(super) struct Sensors {
    workload: WorkloadSensor,
    counter: Option<CounterReader>,
    waits: Waits,
    traffic: Traffic,
    last: Reading,
    /// The most threads that ran between two samples since the last observation.
    ran: u32,
}

/// One reading of all counters.
#[derive(Debug, Clone, Default)]
struct Reading {
    vcpus: VcpuReading,
    workload: WorkloadCounters,
    throttled: Duration,
    counter: Option<f64>,
}

impl Sensors {
    /// The first interval starts with `vcpus`.
    pub(super) fn new(
        workload: WorkloadSensor,
        counter: Option<CounterReader>,
        (waits, traffic): (Waits, Traffic),
        vcpus: &VcpuReading,
    ) -> Result<Self, LiveError> {
        let mut sensors = Self { workload, counter: None, waits, traffic, last: Reading::default(), ran: 0 };
        sensors.last = Reading { vcpus: vcpus.clone(), ..sensors.read(None)? };
        // First read with the first observation, so that a counter that does not answer cannot delay the start.
        sensors.counter = counter;
        Ok(sensors)
    }

    /// Total time for which the workload's threads have waited for a vCPU.
    pub(super) fn run_delay(&mut self) -> Result<Duration, LiveError> {
        let sample = self.workload.sample()?;
        self.ran = self.ran.max(sample.ran);
        Ok(sample.run_delay)
    }

    /// The workload's processes at the last reading.
    pub(super) fn processes(&self) -> u32 {
        self.last.workload.processes
    }

    /// Whether the workload can still be sampled.
    pub(super) fn has_workload(&self) -> bool {
        self.workload.exists()
    }

    pub(super) fn list_processes(&mut self) -> Result<Vec<u32>, LiveError> {
        Ok(self.workload.processes()?)
    }

    pub(super) fn threads(&mut self) -> Result<Vec<u32>, LiveError> {
        Ok(self.workload.threads()?)
    }

    /// What to measure, from the next interval on.
    pub(super) fn sense(&mut self, what: Sense) {
        self.waits.set_wanted(what.waiting);
        self.traffic.set_wanted(what.traffic);
    }

    /// Takes the sentences about sensors for the journal.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        let of_counter = self.counter.as_mut().map(CounterReader::take_notes).unwrap_or_default();
        let others = [self.waits.take_note(), self.traffic.take_note()];
        others.into_iter().flatten().chain(of_counter).collect()
    }

    /// The interval since the last call, with what `vcpus` then reads of the vCPUs of `allowed`; what the caller knows
    /// better is left empty, and `settled` true. Waits for a progress counter until one of `urgent` is readable; `None`
    /// means that the run is over and nothing is waited for.
    pub(super) fn observe<'v>(
        &mut self,
        urgent: Option<&[BorrowedFd<'_>]>,
        allowed: &CpuSet,
        vcpus: impl FnOnce() -> Result<&'v VcpuReading, LiveError>,
    ) -> Result<Observation, LiveError> {
        let cost = thread_cpu_time();
        let read = self.read(urgent)?;
        let now = Reading { vcpus: vcpus()?.clone(), ..read };
        let last = std::mem::replace(&mut self.last, now);
        let now = &self.last;
        let period = now.vcpus.at.saturating_sub(last.vcpus.at);
        let throttled = now.throttled.saturating_sub(last.throttled);
        let vcpus = now.vcpus.since(&last.vcpus, allowed);
        let mut workload = workload_interval(&last, now);
        workload.ran = Some(std::mem::take(&mut self.ran).max(now.workload.ran));
        workload.waiting = Some(self.waits.observe(&workload, &vcpus));
        let has_sockets = || self.workload.has_sockets().unwrap_or(false);
        let writes = now.workload.write_calls.zip(last.workload.write_calls);
        let writes = writes.map(|(b, a)| b.saturating_sub(a));
        self.traffic.observe(period, &mut workload, writes, has_sockets);
        Ok(Observation {
            at: now.vcpus.at,
            period,
            vcpus,
            workload,
            runnable: 0,
            overload: None,
            throttled: (throttled.as_secs_f64() / period.as_secs_f64().max(1e-6)).min(1.0),
            settled: true,
            cost: thread_cpu_time().saturating_sub(cost),
        })
    }

    /// Reads all but the vCPUs' counters.
    fn read(&mut self, urgent: Option<&[BorrowedFd<'_>]>) -> Result<Reading, LiveError> {
        let workload = self.workload.sample()?;
        // A counter that cannot be read (yet: the program might just have started) is a missing signal.
        let counter = self.counter.as_mut().and_then(|counter| match urgent {
            Some(urgent) => counter.read(urgent),
            None => counter.read_at_the_end(),
        });
        let throttled = self.workload.throttled()?.map_or(Duration::ZERO, |t| t.time);
        Ok(Reading { vcpus: VcpuReading::default(), workload, throttled, counter })
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
        ran: None,
        waiting: None,
        sockets: None,
        incomplete: false,
    }
}

/// CPU time of the calling thread.
pub(super) fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
