//! Which vCPUs still poll by a limit that is in force no more: each drops it at its next halt.

use std::time::{Duration, Instant};

use gleaner_policy::{CpuId, CpuSet};

use super::LiveError;
use super::vcpus::VcpuSensors;

/// The vCPUs that have not halted since their polling was turned off.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// Each with its halts at that time.
    vcpus: Vec<(CpuId, u64)>,
    /// How long these poll before they halt.
    polled: Duration,
}

impl Settling {
    /// The polling of `active`, each vCPU up to `polled`, has just been turned off.
    pub(super) fn start(
        &mut self,
        sensors: &mut VcpuSensors,
        active: &CpuSet,
        polled: Duration,
    ) -> Result<(), LiveError> {
        let halts = sensors.read_halts()?;
        self.polled = polled;
        self.vcpus = halts.into_iter().filter(|(cpu, _)| active.contains(*cpu)).collect();
        Ok(())
    }

    /// Polling was turned on again.
    pub(super) fn clear(&mut self) {
        self.vcpus.clear();
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
        }
        Ok(())
    }

    /// Waits, within bounds, until the vCPUs `of` have halted. Other programs can keep a vCPU from halting.
    pub(super) fn wait(&mut self, sensors: &mut VcpuSensors, of: &CpuSet) -> Result<(), LiveError> {
        // The longest poll limit that a latency request leaves behind (a sixteenth of a tick at 100 Hz), and
        // the same again.
        let end = Instant::now() + self.polled.max(Duration::from_micros(750)) + Duration::from_micros(750);
        while !self.is_over_on(of) && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
            self.update(sensors)?;
        }
        Ok(())
    }
}
