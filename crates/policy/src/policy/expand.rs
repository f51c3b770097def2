//! Expanding the active set within milliseconds: when more threads queue up than the smaller set was proven
//! with, all vCPUs come back at once (the paper waits for the next utilisation reading). The smaller set is
//! resumed when that load is over.

use super::{CpuSet, Duration, Event, Observation, Policy, RESUME_TIMEOUT, Watch};
use crate::Overload;
use crate::overload::Persistence;

/// On more vCPUs the same load can measure this much larger than on fewer: wake-ups take CPU time, too.
const WAKE_UP_FACTOR: f64 = 1.1;
/// Sampling interval of the number of runnable threads, on a smaller set.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// Sampling interval on a full set, for vCPUs that become idle.
const IDLE_SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
/// Samples would disturb a trial's blocks, so there only the kernel's reports count.
const NO_SAMPLING: Duration = Duration::from_secs(3600);

/// A smaller set that was proven and is suspended while more threads are runnable than it can take.
#[derive(Debug, Clone)]
pub(super) struct Suspended {
    inactive: Vec<CpuSet>,
    threshold: u32,
    expanded_at: Duration,
    /// Whether the load was falling at the latest observation: few threads were runnable at its end, but more before.
    falling: bool,
}

#[derive(Debug, Clone)]
pub(super) struct OverloadState {
    /// The number of runnable threads that is too much for the proven, smaller set.
    pub(super) threshold: u32,
    /// The smaller set that an overload suspended.
    pub(super) suspended: Option<Suspended>,
    persistence: Persistence,
}

impl OverloadState {
    pub(super) fn new() -> Self {
        Self { threshold: u32::MAX, suspended: None, persistence: Persistence::new() }
    }

    /// Whether the load that suspended the smaller set is just ending: the next observation shows if the set can be
    /// resumed.
    pub(super) fn is_ending(&self) -> bool {
        self.suspended.as_ref().is_some_and(|suspended| suspended.falling)
    }

    /// The workload changed.
    pub(super) fn reset(&mut self) {
        self.threshold = u32::MAX;
        self.suspended = None;
    }

    /// The set of `active` vCPUs was proven with at most `runnable` runnable threads. It replaces one that was
    /// suspended.
    pub(super) fn proven_with(&mut self, runnable: u32, active: &CpuSet) {
        self.suspended = None;
        let active = u32::try_from(active.len()).unwrap_or(u32::MAX);
        self.threshold = (active + 2).max(runnable.saturating_mul(2));
    }
}

impl Policy {
    /// Whether more threads queue up on the smaller set in force than it was proven with. A reported overload
    /// was measured over its own time; otherwise the runnable threads at this moment and the run delay of the
    /// whole interval decide. During a trial only reports count: the moments at the ends of blocks say nothing.
    fn is_overloaded(&self, o: &Observation, active: &CpuSet) -> bool {
        let (runnable, waiting) = match (o.overload, &self.trial) {
            (Some(Overload { runnable, waiting, .. }), _) => (runnable, waiting),
            (None, Some(_)) => return false,
            (None, None) => {
                (o.runnable, o.workload.run_delay.as_secs_f64() / o.period.as_secs_f64().max(1e-6))
            }
        };
        self.is_consolidated(active)
            && runnable >= self.overload.threshold
            && waiting > 0.5 * active.len() as f64
    }

    /// Whether `active` is smaller than the full set and contains the proven one.
    fn is_consolidated(&self, active: &CpuSet) -> bool {
        active.len() < self.allowed.len() && self.active().is_subset(active)
    }

    /// Activates all vCPUs and ends any trial if more threads queue up on the vCPUs that were `active` than
    /// these can take.
    pub(super) fn expand_under_overload(
        &mut self,
        o: &Observation,
        active: CpuSet,
        events: &mut Vec<Event>,
    ) -> bool {
        if !self.is_overloaded(o, &active) {
            return false;
        }
        self.abandon_trial(o.at);
        let runnable = o.overload.map_or(o.runnable, |overload| overload.runnable);
        events.push(Event::Expanded { runnable, active, source: o.overload.map(|overload| overload.source) });
        let suspended = Suspended {
            inactive: self.inactive.clone(),
            threshold: self.overload.threshold,
            expanded_at: o.at,
            falling: false,
        };
        self.restore_all(o.at, events);
        self.overload.suspended = Some(suspended);
        true
    }

    /// Resumes the suspended set once the load that expanded it is over; the set is proven again soon.
    pub(super) fn resume_set(&mut self, o: &Observation, events: &mut Vec<Event>) -> bool {
        let Some(mut suspended) = self.overload.suspended.take() else { return false };
        let expanded_for = o.at.saturating_sub(suspended.expanded_at);
        if expanded_for > RESUME_TIMEOUT {
            return false;
        }
        let set = suspended.inactive.iter().fold(self.allowed.clone(), |set, step| set.difference(step));
        let few = o.runnable < suspended.threshold;
        let light = o.load() < set.len() as f64 * WAKE_UP_FACTOR && self.fits(&set, o.load());
        suspended.falling = few && !light && !suspended.falling;
        if !(o.is_average() && few && light && self.is_worth_trying(o)) {
            self.overload.suspended = Some(suspended);
            return false;
        }
        self.leave_out(suspended.inactive, o);
        self.overload.threshold = suspended.threshold;
        self.overload.persistence.resumed(expanded_for);
        self.prove_soon(o.at);
        events.push(Event::Resumed { setting: self.incumbent(), known: None });
        true
    }

    /// What to watch between observations: on a smaller set, threads queueing up; on a saturated full set, the end of
    /// that load, after which the set could be retained or the smaller one resumed.
    pub(super) fn watch(&self, o: &Observation) -> Option<Watch> {
        let n = u32::try_from(self.allowed.len()).unwrap_or(u32::MAX);
        let (every, at_least, at_most) = if self.is_consolidated(&self.setting().active) {
            let every = if self.trial.is_some() { NO_SAMPLING } else { SAMPLE_INTERVAL };
            (every, Some(self.overload.threshold), None)
        } else if self.trial.is_some() || o.load() <= 0.9 * f64::from(n) {
            return None;
        } else if let Some(Suspended { threshold, .. }) = self.overload.suspended {
            // Few enough already: what keeps the set suspended is their load, which an observation must show.
            let at_most = threshold.max(n).saturating_sub(1);
            (
                IDLE_SAMPLE_INTERVAL,
                None,
                Some(if o.runnable > at_most { at_most } else { n.saturating_sub(1) }),
            )
        } else if !self.retained().is_on() {
            (IDLE_SAMPLE_INTERVAL, None, Some(n.saturating_sub(1)))
        } else {
            return None;
        };
        Some(Watch { every, at_least, at_most, times: 3, persistence: self.overload.persistence.time() })
    }
}
