//! Stores every latency, so that a percentile is an actual value rather than the edge of a bucket.

use serde::{Deserialize, Serialize};

use crate::stats::nearest_rank;

/// Latencies in ns, in the order of the answers.
#[derive(Debug, Default)]
pub(super) struct Latencies(Vec<u64>);

/// Summary of the latencies, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Maximum.
    pub max_us: f64,
}

impl Latencies {
    pub(super) fn push(&mut self, ns: u64) {
        self.0.push(ns);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// `None` without latencies.
    pub(super) fn summary(mut self) -> Option<Summary> {
        self.0.sort_unstable();
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |share| Some(us(*self.0.get(nearest_rank(self.0.len(), share)?)?));
        let sum: u128 = self.0.iter().map(|ns| u128::from(*ns)).sum();
        Some(Summary {
            mean_us: sum as f64 / 1e3 / self.0.len() as f64,
            p50_us: at(0.5)?,
            p99_us: at(0.99)?,
            p999_us: at(0.999)?,
            max_us: at(1.0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_latencies_that_occurred() {
        let mut latencies = Latencies::default();
        (1..=1000).rev().for_each(|us| latencies.push(us * 1000));
        assert_eq!(latencies.len(), 1000);
        let summary = latencies.summary().unwrap();
        let expected =
            Summary { mean_us: 500.5, p50_us: 500.0, p99_us: 990.0, p999_us: 999.0, max_us: 1000.0 };
        assert_eq!(summary, expected);
        assert_eq!(Latencies::default().summary(), None);
    }
}
