//! CPU use of the whole machine over a time: busy, polling in the idle loop, stolen by the hypervisor.

use std::time::{Duration, Instant, SystemTime};

use gleaner_kernel::Root;
use gleaner_proto::result::Metric;
use serde::{Deserialize, Serialize};

use super::error::Result;
use crate::sensors::{Counters, Sensors};

/// CPU time per wall-clock time, summed over all vCPUs: 1.0 is one vCPU all the time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuUse {
    /// User, nice, system and interrupt time (`/proc/stat`; sampled by the timer tick).
    pub busy: f64,
    /// Time in cpuidle's POLL state: idle for the guest, but occupying the physical CPU. It is counted when
    /// an idle period ends, so one across the window's edge belongs to the side on which it ends.
    pub polling: f64,
    /// Steal time (`/proc/stat`).
    pub steal: f64,
}

/// Measures from its start on.
pub(crate) struct Meter {
    sensors: Sensors,
    before: Counters,
    began: Instant,
    began_at: SystemTime,
}

impl Meter {
    /// Reads the initial counters.
    pub(crate) fn start(root: &Root) -> Result<Self> {
        let mut sensors = Sensors::new(root)?;
        let before = sensors.read()?;
        Ok(Self { sensors, before, began: Instant::now(), began_at: SystemTime::now() })
    }

    /// Start time, in milliseconds since the Unix epoch.
    pub(crate) fn began_unix_ms(&self) -> u64 {
        let since = self.began_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Reads the counters again; returns the time since the start and the CPU use in it.
    pub(crate) fn stop(mut self) -> Result<(Duration, CpuUse)> {
        let wall = self.began.elapsed();
        let metrics = self.sensors.read()?.since(&self.before);
        let share = |metric| metrics.get(&metric).copied().unwrap_or_default() / wall.as_secs_f64();
        let cpu = CpuUse {
            busy: share(Metric::CpuBusyS),
            polling: share(Metric::CpuPollingS),
            steal: share(Metric::StealS),
        };
        Ok((wall, cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_measured() {
        let mut meter = Meter::start(&Root::system()).unwrap();
        let began = Instant::now();
        // This test alone keeps a CPU busy until a tick has noticed.
        while meter.sensors.read().unwrap().since(&meter.before)[&Metric::CpuBusyS] <= 0.0 {
            assert!(began.elapsed() < Duration::from_secs(60), "no tick came");
        }
        let took = began.elapsed();
        let (wall, cpu) = meter.stop().unwrap();
        assert!(wall >= took);
        assert!(cpu.busy > 0.0, "{cpu:?}");
    }
}
