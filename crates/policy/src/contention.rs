//! How much of the vCPUs' time other VMs take: steal, less what halting causes.
//!
//! KVM's steal is the time for which a vCPU's thread waited on the host (`record_steal_time` in
//! `arch/x86/kvm/x86.c`), so each wake-up of a halted vCPU adds the host's scheduling latency to it. A
//! ping-pong that halts shows 10 to 18 % of steal on an idle host and next to none when it polls. Only the
//! steal of running and polling vCPUs counts.

use std::time::Duration;

use crate::Observation;
use crate::consolidation::scale;

/// The kernel counts steal in 10 ms steps: in a shorter window one step would pass for contention.
const WINDOW: Duration = Duration::from_millis(250);
/// A busy host takes this many times as long for a wake-up as the idle one that was calibrated.
const BUSY_HOST_FACTOR: u32 = 2;

/// If wake-ups of halted vCPUs can explain more than this share of the time, steal says nothing about other
/// VMs.
const MAX_WAKING_SHARE: f64 = 0.25;

/// The share of the vCPUs' time that other VMs take, over windows of a quarter of a second.
#[derive(Debug, Clone)]
pub(crate) struct Contention {
    /// The most steal that the host's part of one wake-up adds.
    per_halt: Duration,
    /// Seconds of steal that halting does not explain. Can be negative while the kernel's next step is due.
    stolen: f64,
    /// vCPU seconds in which steal can be separated from wake-up latency.
    time: f64,
    /// How long it has not been separable. Sums from before a whole window of that are out of date.
    inseparable: Duration,
    share: Option<f64>,
}

impl Contention {
    /// For a machine on which waking a halted vCPU takes `wake_cost`.
    pub(crate) fn new(wake_cost: Duration) -> Self {
        Self {
            per_halt: wake_cost * BUSY_HOST_FACTOR,
            stolen: 0.0,
            time: 0.0,
            inseparable: Duration::ZERO,
            share: None,
        }
    }

    /// The share (0..=1) in the last whole window, `o` included; `None` while vCPUs halt so often that steal
    /// says nothing about other VMs.
    pub(crate) fn share_after(&mut self, o: &Observation) -> Option<f64> {
        let stolen: Duration = o.vcpus.iter().map(|v| v.steal).sum();
        let halts: u64 = o.vcpus.iter().map(|v| v.halts).sum();
        let waking = scale(self.per_halt, halts as f64).as_secs_f64();
        let time = o.period.as_secs_f64() * o.vcpus.len() as f64;
        if waking > MAX_WAKING_SHARE * time {
            self.share = None;
            self.inseparable += o.period;
            return self.share;
        }
        if std::mem::take(&mut self.inseparable) >= WINDOW {
            (self.stolen, self.time) = (0.0, 0.0);
        }
        self.stolen += stolen.as_secs_f64() - waking;
        self.time += time;
        if self.time >= WINDOW.as_secs_f64() * o.vcpus.len() as f64 {
            self.share = Some((self.stolen / self.time).clamp(0.0, 1.0));
            (self.stolen, self.time) = (0.0, 0.0);
        }
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuId, VcpuInterval, WorkloadInterval};

    const MS: Duration = Duration::from_millis(1);

    /// A second of two vCPUs, each with this steal and these halts.
    fn second(steal: Duration, halts: u64) -> Observation {
        let vcpu = |cpu| VcpuInterval {
            cpu: CpuId(cpu),
            halts,
            halt_time: Duration::ZERO,
            polls: 0,
            poll_time: Duration::ZERO,
            steal,
        };
        Observation {
            at: 1000 * MS,
            period: 1000 * MS,
            vcpus: vec![vcpu(0), vcpu(1)],
            workload: WorkloadInterval::default(),
            runnable: 0,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost: Duration::ZERO,
        }
    }

    #[test]
    fn the_latency_of_waking_halted_vcpus_is_no_contention() {
        let mut contention = Contention::new(MS * 20 / 1000);
        // A ping-pong over pipes: 4200 round trips a second, 18 % "stolen".
        assert!(contention.share_after(&second(180 * MS, 4200)).unwrap() < 0.02);
        // The same halts beside a VM that computes.
        assert!(contention.share_after(&second(500 * MS, 4200)).unwrap() > 0.3);
        // Too many halts to separate steal from latency.
        assert_eq!(contention.share_after(&second(500 * MS, 40_000)), None);
    }

    #[test]
    fn steal_that_running_or_polling_vcpus_meet_is_contention() {
        let mut contention = Contention::new(MS * 20 / 1000);
        assert!((contention.share_after(&second(150 * MS, 0)).unwrap() - 0.15).abs() < 1e-9);
    }

    #[test]
    fn one_step_of_the_clock_is_no_contention() {
        let mut contention = Contention::new(MS * 20 / 1000);
        let short = Observation { period: 20 * MS, ..second(10 * MS, 0) };
        assert_eq!(contention.share_after(&short), None);
    }
}
