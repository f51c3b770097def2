//! Which vCPUs still poll by a limit that is in force no more: each drops it at its next halt.

use std::time::{Duration, Instant};

use gleaner_policy::{CpuId, CpuSet, Method, Retention};

use super::LiveError;
use super::vcpus::VcpuSensors;

/// The longest poll limit that a latency request leaves behind: a sixteenth of a tick at 100 Hz (kernel:
/// drivers/cpuidle/cpuidle.c, `cpuidle_poll_time`).
const LEFT_BY_REQUEST: Duration = Duration::from_micros(625);
/// For a vacated vCPU to get idle.
const MARGIN: Duration = Duration::from_micros(150);

/// The vCPUs that have not halted since their polling was turned off.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// Each with its halts at that time.
    vcpus: Vec<(CpuId, u64)>,
    /// The longest that one of them may poll before it halts: a vCPU that has not halted since keeps a higher limit of
    /// before.
    polled: Duration,
}

impl Settling {
    /// The polling of `active` has just been turned off.
    pub(super) fn start(&mut self, sensors: &mut VcpuSensors, active: &CpuSet) -> Result<(), LiveError> {
        let halts = sensors.read_halts()?;
        self.vcpus = halts.into_iter().filter(|(cpu, _)| active.contains(*cpu)).collect();
        Ok(())
    }

    /// Idle vCPUs poll by `retained` from now on.
    pub(super) fn poll(&mut self, retained: Retention) {
        self.vcpus.clear();
        let limit = if retained.method == Method::QosPoll { LEFT_BY_REQUEST } else { retained.limit };
        self.polled = self.polled.max(limit);
    }

    /// Whether no vCPU polls by an earlier limit any more, as far as is known.
    pub(super) fn is_over(&self) -> bool {
        self.vcpus.is_empty()
    }

    /// As [`Settling::is_over`], for the vCPUs of `of`.
    pub(super) fn is_over_on(&self, of: &CpuSet) -> bool {
        !self.vcpus.iter().any(|(cpu, _)| of.contains(*cpu))
    }

    /// Removes the vCPUs that have halted.
    pub(super) fn update(&mut self, sensors: &mut VcpuSensors) -> Result<(), LiveError> {
        if !self.vcpus.is_empty() {
            let now = sensors.read_halts()?;
            self.vcpus.retain(|known| now.contains(known));
            if self.is_over() {
                self.polled = Duration::ZERO;
            }
        }
        Ok(())
    }

    /// Waits until the vCPUs `of`, which have been vacated, have halted, or should have: a halt is counted when it ends.
    /// Other programs can keep a vCPU from halting.
    pub(super) fn wait(&mut self, sensors: &mut VcpuSensors, of: &CpuSet) -> Result<(), LiveError> {
        let end = Instant::now() + self.polled + MARGIN;
        while !self.is_over_on(of) && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
            self.update(sensors)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vcpu_that_has_not_halted_may_poll_by_the_longest_limit_of_before() {
        let us = Duration::from_micros;
        let mut settling = Settling::default();
        settling.poll(Retention { method: Method::Haltpoll, limit: us(800) });
        settling.poll(Retention { method: Method::Haltpoll, limit: us(200) });
        assert_eq!(settling.polled, us(800));
        let mut settling = Settling::default();
        settling.poll(Retention { method: Method::QosPoll, limit: Duration::ZERO });
        assert_eq!(settling.polled, LEFT_BY_REQUEST);
    }
}
