//! What the ranking of causes is based on: the counters, and what waking costs on this machine.

use std::time::Duration;

use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_policy::{ASSUMED_HALT_COST, Method, Placement};
use gleaner_trace::Snapshot;
use serde::Serialize;

use gleaner_calibrate::{self as calibrate, Calibration};

use super::exits::Recorded;

#[derive(Debug)]
pub(super) struct Evidence<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) costs: Costs,
    /// What the host recorded of this machine, if its record is named.
    pub(super) recorded: Option<&'a Recorded>,
    /// Steal in vCPUs: 0.5 is half of one.
    pub(super) stolen: f64,
    pub(super) vcpus: usize,
}

/// Costs of waking on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Costs {
    /// From the waker's call until a thread runs on a vCPU that had halted.
    pub(super) halted: Duration,
    /// The same on the waker's own vCPU.
    pub(super) ready: Duration,
    /// What sending an interrupt costs the sender.
    pub(super) interrupt: Duration,
    /// Measured on this machine rather than assumed.
    pub(super) measured: bool,
}

impl Costs {
    /// Typical of machines on which they could be measured.
    pub(super) const ASSUMED: Self = Self {
        halted: ASSUMED_HALT_COST,
        ready: Duration::from_micros(2),
        interrupt: Duration::from_micros(5),
        measured: false,
    };

    /// From this boot's calibration or a quick one made now (a quarter of a second), else assumed.
    pub(super) fn known(state: &StateDir, root: &Root) -> Self {
        let calibration = calibrate::in_use(state, root).ok();
        calibration.as_ref().and_then(Self::of).unwrap_or(Self::ASSUMED)
    }

    /// With what the host recorded: it sees exits, which the guest can only estimate. A wake-up as a whole the guest measures
    /// better, if it has.
    pub(super) fn with(self, recorded: Option<&Recorded>) -> Self {
        let Some(recorded) = recorded else { return self };
        let wake_up = recorded.wake_up.filter(|_| !self.measured).unwrap_or(self.halted);
        Self {
            halted: wake_up,
            ready: self.ready.min(wake_up),
            interrupt: recorded.ipi.unwrap_or(self.interrupt),
            ..self
        }
    }

    fn of(calibration: &Calibration) -> Option<Self> {
        let halted = calibration.costs.get(Method::Halt, Placement::AcrossHalting)?.median;
        let ready = calibration.costs.get(Method::Halt, Placement::SameVcpu)?.median;
        let waker = |placement| {
            let halting =
                calibration.cells.iter().filter(|c| c.method == Method::Halt && c.placement == placement);
            halting.map(|cell| cell.waker_cpu_ns).max()
        };
        let interrupt = waker(Placement::AcrossHalting)?.saturating_sub(waker(Placement::SameVcpu)?);
        Some(Self {
            halted,
            ready: ready.min(halted),
            interrupt: Duration::from_nanos(interrupt),
            measured: true,
        })
    }
}
