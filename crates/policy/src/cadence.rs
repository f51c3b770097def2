//! When to look again: fast while something changes, rarely when nothing does, never costlier than a budget.

use std::time::Duration;

use crate::Observation;
use crate::progress::is_same_granularity;

/// Between observations while something changes.
pub(crate) const FASTEST: Duration = Duration::from_millis(20);
/// Between looks when nothing does.
const SLOWEST: Duration = Duration::from_millis(500);
/// Looking may take this share of one vCPU: a look costs at most 1/170 of the time to the next.
const BUDGET: u32 = 170;
/// However expensive an observation is, the next one comes before a change has gone unseen for this long.
const LONGEST: Duration = Duration::from_secs(10);
/// A workload whose load changes by less than this (in vCPUs) is calm if its computation granularity also stays.
const CALM_LOAD: f64 = 0.15;

/// The adaptive period of the loop.
#[derive(Debug, Clone)]
pub(crate) struct Cadence {
    period: Duration,
    /// What the latest two looks under the setting in force cost.
    costs: Option<[Duration; 2]>,
    /// Load and switches per CPU second of the previous interval.
    last: Option<(f64, f64)>,
}

impl Cadence {
    pub(crate) fn new() -> Self {
        Self { period: FASTEST, costs: None, last: None }
    }

    /// Takes what a look has cost while `incumbent` was in force, and not a setting on trial: beside polling threads a look
    /// may cost a hundred times as much, which says nothing about the next one without them.
    pub(crate) fn looked(&mut self, o: &Observation, incumbent: bool) {
        if incumbent {
            self.costs = Some([self.costs.map_or(o.cost, |[_, before]| before), o.cost]);
        }
    }

    /// The time to the next look, after `o`; `busy` says that something was decided.
    pub(crate) fn next(&mut self, o: &Observation, decided: bool) -> Duration {
        let load = o.load();
        let density = o.workload.switches as f64 / o.workload.cpu_time.as_secs_f64().max(1e-6);
        let calm = self.last.is_some_and(|(l, d)| {
            let idle = load.max(l) < 0.01;
            let factor = (density + 1.0) / (d + 1.0);
            (load - l).abs() < CALM_LOAD && (idle || is_same_granularity(factor))
        });
        self.last = Some((load, density));
        self.period = if decided || !calm { FASTEST } else { (self.period * 2).min(SLOWEST) };
        let cost = self.costs.map_or(o.cost, |[before, latest]| before.min(latest));
        self.period.max(cost * BUDGET).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkloadInterval;

    #[test]
    fn a_look_beside_polling_threads_does_not_delay_the_next() {
        const MS: Duration = Duration::from_millis(1);
        let look = |cost| Observation {
            at: 20 * MS,
            period: 20 * MS,
            vcpus: Vec::new(),
            workload: WorkloadInterval::default(),
            runnable: 0,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost,
        };
        let mut cadence = Cadence::new();
        cadence.looked(&look(2 * MS), true);
        for costly in [50 * MS, 30 * MS] {
            cadence.looked(&look(costly), false);
        }
        assert_eq!(cadence.next(&look(30 * MS), true), 2 * MS * BUDGET);
        // What is expensive without polling is expensive.
        cadence.looked(&look(30 * MS), true);
        cadence.looked(&look(30 * MS), true);
        assert_eq!(cadence.next(&look(30 * MS), true), 30 * MS * BUDGET);
    }
}
