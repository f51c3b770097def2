//! What one period shows of the workload.

use std::collections::BTreeMap;

use crate::{CpuId, CpuSet, Measurement, Observation};

/// §5's quantities, and the utilisation of each active vCPU.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) measured: Measurement,
    /// Utilisation by vCPU, 0..=1.
    busy: BTreeMap<CpuId, f64>,
}

impl Sample {
    /// What `o` shows on the vCPUs `active`.
    pub(super) fn of(o: &Observation, active: &CpuSet) -> Self {
        let period = o.period.as_secs_f64().max(1e-9);
        let busy: BTreeMap<CpuId, f64> = o
            .on(active)
            .map(|v| (v.cpu, (1.0 - (v.idle_time() + v.steal).as_secs_f64() / period).clamp(0.0, 1.0)))
            .collect();
        let measured = Measurement {
            utilization: o.load() / active.len().max(1) as f64,
            max_utilization: busy.values().copied().fold(0.0, f64::max),
            ..o.measurement(active)
        };
        Self { measured, busy }
    }

    /// Whether a vCPU is at least `utilization` busy that was less busy in `before`.
    pub(super) fn reached(&self, utilization: f64, before: &Self) -> bool {
        let was_below = |cpu| before.busy.get(cpu).is_none_or(|busy| *busy < utilization);
        self.busy.iter().any(|(cpu, busy)| *busy >= utilization && was_below(cpu))
    }
}
