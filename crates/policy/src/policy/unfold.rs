//! Unfolding in milliseconds: more threads queue up than the smaller set was proven with, so that all vCPUs come back
//! at once (beyond the paper, which waits for the next utilisation reading), and fold again when that load is over.

use super::hold::is_average;
use super::{CpuSet, Duration, Event, MEMORY, Observation, Policy, Watch};
use crate::Crowd;
use crate::crowd::Patience;

/// On more vCPUs a load can be this much larger than on fewer: waking each other takes CPU time, too.
const WAKE_UP_SHARE: f64 = 1.1;
/// Between looks at the number of runnable threads, on a smaller set.
const LOOK: Duration = Duration::from_millis(5);
/// Between looks on a full set, for vCPUs that fall idle.
const LOOK_FOR_IDLE: Duration = Duration::from_millis(10);
/// In a trial nobody looks, which would disturb its blocks; only what is told counts.
const NEVER: Duration = Duration::from_secs(3600);

/// A smaller set that was proven, until more threads than it can take unfolded it.
#[derive(Debug)]
pub(super) struct Folded {
    deactivated: Vec<CpuSet>,
    pressure: u32,
    unfolded_at: Duration,
}

/// What is known of crowds on the smaller set.
#[derive(Debug)]
pub(super) struct Crowding {
    /// So many runnable threads are more than the proven, smaller set can take.
    pub(super) pressure: u32,
    /// The smaller set that such pressure ended.
    pub(super) folded: Option<Folded>,
    patience: Patience,
}

impl Crowding {
    pub(super) fn new() -> Self {
        Self { pressure: u32::MAX, folded: None, patience: Patience::new() }
    }

    /// The workload is another one now.
    pub(super) fn forget(&mut self) {
        self.pressure = u32::MAX;
        self.folded = None;
    }

    /// The set of `active` vCPUs was proven with at most `runnable` threads that wanted to run.
    pub(super) fn proven_with(&mut self, runnable: u32, active: &CpuSet) {
        let active = u32::try_from(active.len()).unwrap_or(u32::MAX);
        self.pressure = (active + 2).max(runnable.saturating_mul(2));
    }
}

impl Policy {
    /// Whether more threads queue up on the smaller set in force than it was proven with. A signal says over which time
    /// it was so; without one it is judged by the moment's runnable threads and the whole interval's run delay. During
    /// a trial the blocks judge, and the moments at their ends say nothing.
    fn pressed(&self, o: &Observation, active: &CpuSet) -> bool {
        let (runnable, waiting) = match (o.crowd, &self.trial) {
            (Some(Crowd { runnable, waiting, .. }), _) => (runnable, waiting),
            (None, Some(_)) => return false,
            (None, None) => {
                (o.runnable, o.workload.run_delay.as_secs_f64() / o.period.as_secs_f64().max(1e-6))
            }
        };
        self.is_folded(active) && runnable >= self.crowding.pressure && waiting > 0.5 * active.len() as f64
    }

    /// Whether `active` is a smaller set that is proven, or lies between it and all vCPUs.
    fn is_folded(&self, active: &CpuSet) -> bool {
        active.len() < self.allowed.len() && self.active().is_subset(active)
    }

    /// All vCPUs back at once, and any trial ended, if more threads queue up on the vCPUs that were `active` than these
    /// can take.
    pub(super) fn unfold_under_pressure(
        &mut self,
        o: &Observation,
        active: CpuSet,
        events: &mut Vec<Event>,
    ) -> bool {
        if !self.pressed(o, &active) {
            return false;
        }
        self.trial = None;
        let runnable = o.crowd.map_or(o.runnable, |crowd| crowd.runnable);
        events.push(Event::Unfolded { runnable, active, told: o.crowd.map(|crowd| crowd.source) });
        let folded = Folded {
            deactivated: self.deactivated.clone(),
            pressure: self.crowding.pressure,
            unfolded_at: o.at,
        };
        self.restore_all(o.at);
        self.crowding.folded = Some(folded);
        true
    }

    /// The load that unfolded the set is over: the set is in force again at once, to be proven again soon.
    pub(super) fn fold_again(&mut self, o: &Observation, events: &mut Vec<Event>) -> bool {
        let Some(folded) = &self.crowding.folded else { return false };
        let unfolded_for = o.at.saturating_sub(folded.unfolded_at);
        if unfolded_for > MEMORY {
            self.crowding.folded = None;
            return false;
        }
        let away: usize = folded.deactivated.iter().map(CpuSet::len).sum();
        let room = (self.allowed.len() - away) as f64;
        let fits = is_average(o)
            && o.runnable < folded.pressure
            && o.load() < room * WAKE_UP_SHARE
            && self.is_worth_trying(o);
        if !fits {
            return false;
        }
        if let Some(folded) = self.crowding.folded.take() {
            self.deactivated = folded.deactivated;
            self.crowding.pressure = folded.pressure;
        }
        self.crowding.patience.folded(unfolded_for);
        self.prove_soon(o.at);
        events.push(Event::Resumed { setting: self.incumbent(), known: None });
        true
    }

    /// Between the observations: on a smaller set, that threads queue up; on a saturated full set that may be
    /// retained or folded then, that vCPUs fall idle.
    pub(super) fn watch(&self, o: &Observation) -> Option<Watch> {
        let n = u32::try_from(self.allowed.len()).unwrap_or(u32::MAX);
        let (every, at_least, at_most) = if self.is_folded(&self.setting().active) {
            let every = if self.trial.is_some() { NEVER } else { LOOK };
            (every, Some(self.crowding.pressure), None)
        } else if self.trial.is_some() {
            return None;
        } else if (!self.retention.is_on() || self.crowding.folded.is_some()) && o.load() > 0.9 * f64::from(n)
        {
            (LOOK_FOR_IDLE, None, Some(n.saturating_sub(1)))
        } else {
            return None;
        };
        Some(Watch { every, at_least, at_most, times: 3, patience: self.crowding.patience.time() })
    }
}
