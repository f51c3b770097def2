//! What the ranking of causes is based on: the counters, and what waking costs on this machine.

use std::time::Duration;

use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_policy::{ASSUMED_HALT_COST, Method, Placement};
use gleaner_trace::Snapshot;
use serde::Serialize;

use gleaner_calibrate::{self as calibrate, Calibration};

#[derive(Debug)]
pub(super) struct Evidence<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) costs: Costs,
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
