//! The machine's counters: what each vCPU did, and how many threads want one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gleaner_kernel::Root;
use gleaner_kernel::idle::{IdleCounters, IdleSensor};
use gleaner_kernel::lever::yield_threads::YieldThreads;
use gleaner_kernel::stat::StatSensor;
use gleaner_policy::{CpuId, CpuSet, VcpuInterval};

use super::LiveError;

/// Reads the machine's counters.
#[derive(Debug)]
pub(super) struct VcpuSensors {
    idle: IdleSensor,
    stat: StatSensor,
    start: Instant,
    latest: VcpuReading,
}

/// The counters of all vCPUs at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct VcpuReading {
    /// Time since the start.
    pub(super) at: Duration,
    vcpus: BTreeMap<CpuId, VcpuCounters>,
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

impl VcpuSensors {
    pub(super) fn new(root: &Root) -> Result<Self, LiveError> {
        let (idle, stat) = (IdleSensor::new(root)?, StatSensor::new(root)?);
        let mut sensors = Self { idle, stat, start: Instant::now(), latest: VcpuReading::default() };
        sensors.read(None)?;
        Ok(sensors)
    }

    /// As if the start had been earlier by `time`.
    #[cfg(test)]
    pub(super) fn set_back(&mut self, time: Duration) {
        self.start -= time;
    }

    /// Time since the start.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Runnable threads on the machine, this one excluded.
    pub(super) fn runnable(&self) -> Result<u32, LiveError> {
        Ok(self.stat.runnable()?.saturating_sub(1))
    }

    /// Total halts by vCPU.
    pub(super) fn read_halts(&mut self) -> Result<Vec<(CpuId, u64)>, LiveError> {
        Ok(self.idle.read()?.iter().map(|idle| (idle.cpu, idle.halts)).collect())
    }

    /// The present counters.
    pub(super) fn read(&mut self, yields: Option<&YieldThreads>) -> Result<&VcpuReading, LiveError> {
        let stat = self.stat.read()?;
        let idle = self.idle.read()?;
        let steal = |(cpu, times): &(CpuId, gleaner_kernel::stat::CpuTimes)| {
            (*cpu, VcpuCounters { steal: times.steal, ..VcpuCounters::default() })
        };
        let mut vcpus: BTreeMap<CpuId, VcpuCounters> = stat.cpus.iter().map(steal).collect();
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
        self.latest = VcpuReading { at: self.start.elapsed(), vcpus };
        Ok(&self.latest)
    }

    /// The counters that were read last.
    pub(super) fn latest(&self) -> &VcpuReading {
        &self.latest
    }
}

impl VcpuReading {
    /// What the vCPUs of `allowed` did since `last`. What `last` does not have is empty.
    pub(super) fn since(&self, last: &Self, allowed: &CpuSet) -> Vec<VcpuInterval> {
        let allowed = self.vcpus.iter().filter(|(cpu, _)| allowed.contains(**cpu));
        allowed.map(|(cpu, now)| now.since(last.vcpus.get(cpu), *cpu)).collect()
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
