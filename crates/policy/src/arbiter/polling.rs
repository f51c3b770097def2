//! How much of the machine's time idle vCPUs spend polling.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{CpuId, Observation};

/// Long enough for a burst of polling to be none, short enough for its end to be seen before it is tried again.
const SMOOTHING: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, Default)]
struct Vcpu {
    /// The share (0..=1) of its time that it polled, smoothed.
    share: f64,
    /// Until when it is known. Intervals of different workloads overlap.
    until: Duration,
}

/// The polling time of each vCPU, from the observations of all workloads.
#[derive(Debug, Default)]
pub(super) struct PollingTime {
    vcpus: BTreeMap<CpuId, Vcpu>,
}

impl PollingTime {
    pub(super) fn observe(&mut self, o: &Observation) {
        for v in &o.vcpus {
            let vcpu = self.vcpus.entry(v.cpu).or_default();
            let news = o.at.saturating_sub(vcpu.until).min(o.period);
            let share = v.poll_time.as_secs_f64() / o.period.as_secs_f64().max(1e-6);
            let weight = 1.0 - (-news.as_secs_f64() / SMOOTHING.as_secs_f64()).exp();
            vcpu.share += weight * (share.min(1.0) - vcpu.share);
            vcpu.until = vcpu.until.max(o.at);
        }
    }

    /// The share of the time of `vcpus` vCPUs that was spent polling.
    pub(super) fn share(&self, vcpus: usize) -> f64 {
        self.vcpus.values().map(|vcpu| vcpu.share).sum::<f64>() / vcpus.max(1) as f64
    }

    /// Polling has ended; it is measured anew when it is back.
    pub(super) fn reset(&mut self) {
        self.vcpus.values_mut().for_each(|vcpu| vcpu.share = 0.0);
    }
}
