//! The machine-wide sensor: how often vCPUs become idle, and how often threads are switched.

use std::time::{Duration, Instant};

use gleaner_kernel::idle::{IdleCounters, IdleSensor, IdleSource};
use gleaner_kernel::stat::{StatSensor, SystemStat};
use gleaner_kernel::{KernelError, Root};

/// What the machine did since the reading before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Time since the reading before.
    pub interval: Duration,
    /// Idle periods of all vCPUs per second: halts, or polls where the vCPUs poll. Without cpuidle, an upper bound.
    pub idle_periods_per_s: f64,
    /// Whether the idle periods were counted or estimated.
    pub source: IdleSource,
    /// Context switches of all vCPUs per second.
    pub switches_per_s: f64,
    /// Context switches of all vCPUs since boot.
    pub switches: u64,
    /// The share of all vCPUs' time in which they had nothing to run, 0 to 1.
    pub idle_share: f64,
    /// Online vCPUs.
    pub vcpus: u32,
}

impl Reading {
    /// What wake-ups of idle vCPUs can have cost at most, in vCPUs: idle periods, each ended by a wake-up of this
    /// cost.
    pub fn lost(&self, wake_cost: Duration) -> f64 {
        self.idle_periods_per_s * wake_cost.as_secs_f64()
    }
}

/// Reads `/proc/stat` and the idle counters of each vCPU, from files that stay open. About 1 us per idle state and
/// vCPU, and 10 us for `/proc/stat`; `docs/discovery.md` has the measured cost.
#[derive(Debug)]
pub struct Pulse {
    idle: IdleSensor,
    stat: StatSensor,
    last: Sample,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    idle: Vec<IdleCounters>,
    stat: SystemStat,
}

impl Pulse {
    /// Opens the files and takes the first sample.
    ///
    /// # Errors
    /// `/proc/stat` or the list of online vCPUs cannot be read.
    pub fn new(root: &Root) -> Result<Self, KernelError> {
        let (mut idle, mut stat) = (IdleSensor::new(root)?, StatSensor::new(root)?);
        let last = Sample::take(&mut idle, &mut stat)?;
        Ok(Self { idle, stat, last })
    }

    /// What happened since the last call, or since [`Pulse::new`].
    ///
    /// # Errors
    /// A file is no longer readable, or malformed.
    pub fn read(&mut self) -> Result<Reading, KernelError> {
        let now = Sample::take(&mut self.idle, &mut self.stat)?;
        let reading = now.since(&self.last, self.idle.source());
        self.last = now;
        Ok(reading)
    }
}

impl Sample {
    fn take(idle: &mut IdleSensor, stat: &mut StatSensor) -> Result<Self, KernelError> {
        Ok(Self { at: Instant::now(), idle: idle.read()?, stat: stat.read()? })
    }

    fn since(&self, before: &Self, source: IdleSource) -> Reading {
        let interval = self.at.saturating_duration_since(before.at);
        // The first reading can follow at once.
        let seconds = interval.as_secs_f64().max(1e-6);
        let idle_periods: u64 = self.idle.iter().map(|now| idle_periods(now, &before.idle)).sum();
        let (idle_ticks, all_ticks) = self.ticks_since(before);
        Reading {
            interval,
            idle_periods_per_s: idle_periods as f64 / seconds,
            source,
            switches_per_s: self.stat.switches.saturating_sub(before.stat.switches) as f64 / seconds,
            switches: self.stat.switches,
            idle_share: if all_ticks > 0.0 { idle_ticks / all_ticks } else { 0.0 },
            vcpus: u32::try_from(self.stat.cpus.len()).unwrap_or(u32::MAX),
        }
    }

    /// Idle and all accounted time of the vCPUs in both samples, in seconds.
    fn ticks_since(&self, before: &Self) -> (f64, f64) {
        let (mut idle, mut all) = (0.0, 0.0);
        for (cpu, now) in &self.stat.cpus {
            if let Some((_, then)) = before.stat.cpus.iter().find(|(other, _)| other == cpu) {
                idle += now.not_busy().saturating_sub(then.not_busy()).as_secs_f64();
                all += now.total().saturating_sub(then.total()).as_secs_f64();
            }
        }
        (idle, all)
    }
}

/// The idle periods of one vCPU. One that polls and then halts counts as both, so this is the larger of the two. A
/// vCPU that just came online has none, nor one whose driver was reloaded and counts from zero.
fn idle_periods(now: &IdleCounters, before: &[IdleCounters]) -> u64 {
    let Some(then) = before.iter().find(|then| then.cpu == now.cpu) else { return 0 };
    now.halts.saturating_sub(then.halts).max(now.polls.saturating_sub(then.polls))
}
