//! The counters of the whole machine over the window of a cell.

use std::time::{Instant, SystemTime};

use gleaner_kernel::Root;
use gleaner_proto::result::Metric;

use super::error::Result;
use super::sample::Sample;
use crate::sensors::{Counters, Sensors};

/// Measures from its start on.
pub(super) struct Meter {
    sensors: Sensors,
    before: Counters,
    began: Instant,
    began_at: SystemTime,
}

impl Meter {
    /// Reads the initial counters.
    pub(super) fn start(root: &Root) -> Result<Self> {
        let mut sensors = Sensors::new(root)?;
        let before = sensors.read()?;
        Ok(Self { sensors, before, began: Instant::now(), began_at: SystemTime::now() })
    }

    /// Reads the counters again; returns what they counted, without a rate.
    pub(super) fn stop(mut self) -> Result<Sample> {
        let wall = self.began.elapsed();
        let mut metrics = self.sensors.read()?.since(&self.before);
        metrics.insert(Metric::WallS, wall.as_secs_f64());
        let since_epoch = self.began_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let began_unix_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        Ok(Sample { began_unix_ms, metrics })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        let sample = meter.stop().unwrap();
        assert!(sample.get(Metric::WallS) >= took.as_secs_f64(), "{sample:?}");
        assert!(sample.get(Metric::CpuBusyS) > 0.0, "{sample:?}");
    }
}
