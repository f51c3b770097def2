//! Which part of the machine's time has been counted already.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_policy::CpuId;

/// Several workloads are observed on the same vCPUs, in intervals that overlap. To count what a vCPU did once,
/// however many workloads it was observed for, each interval counts with the share of it that no earlier one has
/// covered.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    until: BTreeMap<CpuId, Duration>,
}

impl Coverage {
    /// The share (0..=1) of the `period` that ends `at` in which `cpu` was not observed before.
    pub(crate) fn add(&mut self, cpu: CpuId, at: Duration, period: Duration) -> f64 {
        let until = self.until.entry(cpu).or_default();
        let uncovered = at.saturating_sub(*until).min(period);
        *until = at.max(*until);
        if period.is_zero() { 0.0 } else { uncovered.as_secs_f64() / period.as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn an_interval_counts_with_what_is_new_in_it() {
        let mut coverage = Coverage::default();
        let mut percent =
            |cpu, at, period| format!("{:.0}", coverage.add(CpuId(cpu), ms(at), ms(period)) * 100.0);
        let counted = [
            percent(0, 100, 100),
            percent(0, 150, 100),
            percent(0, 150, 20),
            percent(1, 150, 20),
            // Nobody observed the time before it.
            percent(0, 900, 100),
            percent(0, 900, 0),
        ];
        assert_eq!(counted, ["100", "50", "0", "100", "100", "0"]);
    }

    proptest! {
        /// A vCPU that polls all the time is counted with no more time than has passed, whatever the intervals.
        #[test]
        fn time_is_counted_once(intervals in prop::collection::vec((0_u64..10_000, 1_u64..500), 1..100)) {
            let mut coverage = Coverage::default();
            let counted: f64 = intervals
                .iter()
                .map(|&(start, length)| coverage.add(CpuId(0), ms(start + length), ms(length)) * length as f64)
                .sum();
            let end = intervals.iter().map(|(start, length)| start + length).max().unwrap_or(0);
            prop_assert!(counted <= end as f64 + 1e-6, "{counted} of {end}");
        }
    }
}
