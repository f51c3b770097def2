//! How much a signal of progress differs between two blocks of one setting, for reasons that Gleaner cannot
//! see.
//!
//! Learning it costs nothing: whenever one setting is in force over two observations, their difference is
//! noise. So a trial knows beforehand what a neighbour, a compiler or the load's own fluctuations do to its
//! blocks.

use std::collections::VecDeque;
use std::time::Duration;

use crate::evidence::{MAD_PER_SIGMA, median};
use crate::progress::{Block, Signal};
use crate::{Observation, Setting};

/// Shorter intervals are not used: their counts are too small to compare.
const MIN_PERIOD: Duration = Duration::from_millis(5);
/// The number of differences kept; older ones do not describe the present.
const MAX_DIFFERENCES: usize = 32;
/// The prior: this many differences...
const PRIOR_COUNT: usize = 6;
/// ...of this size (log ratio), which is what blocks of ten milliseconds show in a VM without another load.
const PRIOR_DIFFERENCE: f64 = 0.06;
/// The least spread assumed (log ratio): nothing on a shared host repeats itself more exactly.
const MIN_SPREAD: f64 = 0.015;

/// The noise of every signal.
#[derive(Debug, Clone)]
pub(crate) struct Noise {
    before: Option<(Setting, Block)>,
    /// Absolute log ratios of neighbouring blocks under one setting, by signal.
    distances: [VecDeque<f64>; Signal::ALL.len()],
}

impl Noise {
    /// Starts from the prior.
    pub(crate) fn new() -> Self {
        let prior: VecDeque<_> = std::iter::repeat_n(PRIOR_DIFFERENCE, PRIOR_COUNT).collect();
        Self { before: None, distances: std::array::from_fn(|_| prior.clone()) }
    }

    /// For a machine where nothing else runs.
    #[cfg(test)]
    pub(crate) fn quiet() -> Self {
        Self { before: None, distances: std::array::from_fn(|_| VecDeque::from([0.0])) }
    }

    /// Takes an observation and the setting that was in force in it.
    pub(crate) fn observe(&mut self, in_force: &Setting, o: &Observation) {
        if o.period < MIN_PERIOD || !o.settled || o.overload.is_some() {
            self.before = None;
            return;
        }
        let none = Duration::ZERO;
        let block = Block { period: o.period, workload: o.workload, waking: none, polled: none };
        if let Some((setting, before)) = &self.before
            && setting == in_force
        {
            for (signal, distances) in Signal::ALL.into_iter().zip(&mut self.distances) {
                let comparable = signal.is_enough(before) && signal.is_enough(&block);
                if let Some(ratio) = signal.log_ratio(before, &block).filter(|_| comparable) {
                    if distances.len() == MAX_DIFFERENCES {
                        distances.pop_front();
                    }
                    distances.push_back(ratio.abs());
                }
            }
        }
        self.before = Some((in_force.clone(), block));
    }

    /// The standard deviation of the logarithm of the ratio of two blocks of one setting.
    pub(crate) fn spread(&self, signal: Signal) -> f64 {
        let distances = &self.distances[signal as usize];
        (median(distances.iter().copied().collect()) / MAD_PER_SIGMA).max(MIN_SPREAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuSet, WorkloadInterval};

    fn moved(bytes: u64) -> Observation {
        Observation {
            at: Duration::ZERO,
            period: Duration::from_millis(20),
            vcpus: Vec::new(),
            workload: WorkloadInterval { moved_bytes: Some(bytes), ..WorkloadInterval::default() },
            runnable: 0,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost: Duration::ZERO,
        }
    }

    #[test]
    fn the_spread_is_what_equal_settings_show() {
        let setting = Setting::untouched(&CpuSet::first(2));
        let mut noise = Noise::new();
        let before = noise.spread(Signal::Moved);
        for i in 0..100 {
            noise.observe(&setting, &moved(if i % 2 == 0 { 100_000 } else { 101_000 }));
        }
        assert!((noise.spread(Signal::Moved) - MIN_SPREAD).abs() < 1e-3);
        assert!((noise.spread(Signal::Handoffs) - before).abs() < 1e-9, "there were none");
        for i in 0..100 {
            noise.observe(&setting, &moved(if i % 2 == 0 { 100_000 } else { 150_000 }));
        }
        assert!(noise.spread(Signal::Moved) > 0.5);
    }

    #[test]
    fn a_change_of_the_setting_is_no_noise() {
        let [one, two] = [1, 2].map(|n| Setting::untouched(&CpuSet::first(n)));
        let mut noise = Noise::new();
        let before = noise.spread(Signal::Moved);
        for _ in 0..100 {
            noise.observe(&one, &moved(100_000));
            noise.observe(&two, &moved(900_000));
        }
        assert!((noise.spread(Signal::Moved) - before).abs() < 1e-9);
    }
}
