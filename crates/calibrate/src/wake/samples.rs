use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

/// The wake-ups measured between two threads: at least one, in both directions. Serialises as
/// [`WakeSummary`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeSamples {
    /// Ascending, in nanoseconds.
    latency_ns: Vec<u64>,
    /// Ascending, in nanoseconds.
    waker_cpu_ns: Vec<u64>,
    misses: u64,
}

/// Summary of [`WakeSamples`], for reports. Times in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeSummary {
    /// Number of measured wake-ups.
    pub n: usize,
    /// Minimum latency.
    pub min_ns: u64,
    /// Median latency.
    pub median_ns: u64,
    /// 99th percentile of the latency.
    pub p99_ns: u64,
    /// Median CPU time of the waker per wake-up.
    pub waker_cpu_ns: u64,
    /// Hand-offs to a thread that was not asleep yet.
    pub misses: u64,
}

impl WakeSamples {
    /// `None` without a latency, so that all statistics below exist.
    pub(super) fn new(mut latency_ns: Vec<u64>, mut waker_cpu_ns: Vec<u64>, misses: u64) -> Option<Self> {
        latency_ns.sort_unstable();
        waker_cpu_ns.sort_unstable();
        (!latency_ns.is_empty()).then_some(Self { latency_ns, waker_cpu_ns, misses })
    }

    /// Adds the samples of another block of the same measurement.
    pub fn merge(&mut self, other: Self) {
        self.latency_ns.extend(other.latency_ns);
        self.latency_ns.sort_unstable();
        self.waker_cpu_ns.extend(other.waker_cpu_ns);
        self.waker_cpu_ns.sort_unstable();
        self.misses += other.misses;
    }

    /// Number of measured wake-ups; never 0.
    pub fn n(&self) -> usize {
        self.latency_ns.len()
    }

    /// Hand-offs that were not measured because the wakee was not asleep yet.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Minimum latency.
    pub fn min(&self) -> Duration {
        Duration::from_nanos(rank(&self.latency_ns, 0))
    }

    /// Median latency.
    pub fn median(&self) -> Duration {
        Duration::from_nanos(rank(&self.latency_ns, 50))
    }

    /// 99th percentile of the latency.
    pub fn p99(&self) -> Duration {
        Duration::from_nanos(rank(&self.latency_ns, 99))
    }

    /// Median CPU time of the waker per wake-up: the system call and, across vCPUs, sending the IPI, which in
    /// a guest can exit to the hypervisor.
    pub fn waker_cpu(&self) -> Duration {
        Duration::from_nanos(rank(&self.waker_cpu_ns, 50))
    }

    /// All latencies, ascending.
    pub fn latencies(&self) -> impl ExactSizeIterator<Item = Duration> + '_ {
        self.latency_ns.iter().map(|ns| Duration::from_nanos(*ns))
    }

    /// The statistics as plain numbers.
    pub fn summary(&self) -> WakeSummary {
        WakeSummary {
            n: self.n(),
            min_ns: rank(&self.latency_ns, 0),
            median_ns: rank(&self.latency_ns, 50),
            p99_ns: rank(&self.latency_ns, 99),
            waker_cpu_ns: rank(&self.waker_cpu_ns, 50),
            misses: self.misses,
        }
    }
}

impl Serialize for WakeSamples {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.summary().serialize(serializer)
    }
}

/// Nearest-rank percentile of ascending values; 0 without values.
fn rank(ascending: &[u64], percent: usize) -> u64 {
    let position = (ascending.len() * percent).div_ceil(100).saturating_sub(1);
    ascending.get(position).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let samples = WakeSamples::new((1..=200).rev().collect(), vec![3, 1, 2], 4).unwrap();
        let ns = Duration::from_nanos;
        assert_eq!((samples.min(), samples.median(), samples.p99()), (ns(1), ns(100), ns(198)));
        assert_eq!((samples.n(), samples.waker_cpu(), samples.misses()), (200, ns(2), 4));
    }

    #[test]
    fn merging_keeps_the_order() {
        let mut samples = WakeSamples::new(vec![5, 9], vec![1], 1).unwrap();
        samples.merge(WakeSamples::new(vec![1, 7, 8], vec![2], 1).unwrap());
        let ns: Vec<u128> = samples.latencies().map(|l| l.as_nanos()).collect();
        assert_eq!(ns, [1, 5, 7, 8, 9]);
        assert_eq!(samples.summary().median_ns, 7);
        assert_eq!(samples.misses(), 2);
    }

    #[test]
    fn nothing_measured_is_no_sample() {
        assert_eq!(WakeSamples::new(vec![], vec![1], 1), None);
    }
}
