//! When to sample next: often while something changes, rarely while nothing does, and never beyond a CPU
//! budget.

use std::time::Duration;

use crate::Observation;
use crate::progress::is_same_granularity;

/// The sampling interval while something changes.
pub(crate) const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// The sampling interval while nothing changes.
pub(crate) const STEADY_INTERVAL: Duration = Duration::from_millis(500);
/// The CPU time budget: a sample may cost at most 1/170 of the interval that follows it, and the samples of a
/// trial as much of the time until the next trial.
const INTERVAL_PER_COST: u32 = 170;
/// However expensive a sample is, no change goes unseen for longer than this.
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// The load is steady if it changes by less than this (in vCPUs) and its computation granularity stays the
/// same.
const STEADY_LOAD_CHANGE: f64 = 0.15;

/// The adaptive sampling interval.
#[derive(Debug, Clone)]
pub(crate) struct Cadence {
    period: Duration,
    /// CPU time of the latest two samples under the setting in force.
    costs: Option<[Duration; 2]>,
    /// Load and switches per CPU second of the previous interval.
    last: Option<(f64, f64)>,
}

impl Cadence {
    pub(crate) fn new() -> Self {
        Self { period: MIN_INTERVAL, costs: None, last: None }
    }

    /// How long the next trial of the same kind must wait after one that took `elapsed` and spent `sampled` of CPU time on
    /// its samples, so that trials stay within the budget, too.
    pub(crate) fn pause_after(elapsed: Duration, sampled: Duration) -> Duration {
        (sampled * INTERVAL_PER_COST).saturating_sub(elapsed)
    }

    /// Records the cost of a sample if it was taken under the incumbent. Under a candidate it can cost a
    /// hundred times more because of polling threads, which says nothing about the next one without them.
    pub(crate) fn sampled(&mut self, o: &Observation, incumbent: bool) {
        if incumbent {
            self.costs = Some([self.costs.map_or(o.cost, |[_, before]| before), o.cost]);
        }
    }

    /// The time until the sample after `o`; `decided` says that `o` led to a decision, or that the next sample shows more.
    pub(crate) fn next(&mut self, o: &Observation, decided: bool) -> Duration {
        let load = o.load();
        let density = o.workload.switches as f64 / o.workload.cpu_time.as_secs_f64().max(1e-6);
        let steady = self.last.is_some_and(|(l, d)| {
            let idle = load.max(l) < 0.01;
            let factor = (density + 1.0) / (d + 1.0);
            (load - l).abs() < STEADY_LOAD_CHANGE && (idle || is_same_granularity(factor))
        });
        self.last = Some((load, density));
        self.period = if decided || !steady { MIN_INTERVAL } else { (self.period * 2).min(STEADY_INTERVAL) };
        let cost = self.costs.map_or(o.cost, |[before, latest]| before.min(latest));
        self.period.max(cost * INTERVAL_PER_COST).min(MAX_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkloadInterval;

    #[test]
    fn a_sample_beside_polling_threads_does_not_delay_the_next() {
        const MS: Duration = Duration::from_millis(1);
        let sample = |cost| Observation {
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
        cadence.sampled(&sample(2 * MS), true);
        for costly in [50 * MS, 30 * MS] {
            cadence.sampled(&sample(costly), false);
        }
        assert_eq!(cadence.next(&sample(30 * MS), true), 2 * MS * INTERVAL_PER_COST);
        // Expensive without polling, too: here the budget applies.
        cadence.sampled(&sample(30 * MS), true);
        cadence.sampled(&sample(30 * MS), true);
        assert_eq!(cadence.next(&sample(30 * MS), true), 30 * MS * INTERVAL_PER_COST);
    }

    #[test]
    fn trials_whose_samples_cost_much_are_rarer() {
        const MS: Duration = Duration::from_millis(1);
        assert_eq!(Cadence::pause_after(600 * MS, MS), Duration::ZERO);
        assert_eq!(Cadence::pause_after(600 * MS, 24 * MS) + 600 * MS, 24 * MS * INTERVAL_PER_COST);
    }
}
