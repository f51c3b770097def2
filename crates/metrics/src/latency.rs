//! A histogram of wake-up latencies that is filled with one interval's wake-ups at a time.

use std::sync::{Arc, Mutex, PoisonError};

use gleaner_policy::Waiting;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The upper bound of the first bucket, in seconds; each further one is twice as large.
const FIRST: f64 = 2e-6;
/// From 2 µs, a hand-off on one vCPU, to 66 ms, by which time a thread waits for something else than a wake-up.
const BUCKETS: usize = 16;

/// The distribution of a workload's wake-to-run latencies.
///
/// An observation holds the number of wake-ups, the sum of their latencies and the 99th percentile. Number and sum
/// are exact here, too. In the buckets, one in a hundred wake-ups of an interval, at least one, has the 99th
/// percentile, and the others have the mean of the rest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latency(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    sum_s: f64,
    wake_ups: u64,
    /// By bucket; the last one has no bound.
    buckets: [u64; BUCKETS + 1],
}

impl Latency {
    pub(crate) fn add(&self, waiting: &Waiting) {
        let (n, total) = (waiting.wake_ups, waiting.total.as_secs_f64());
        if n == 0 {
            return;
        }
        let slow = n.div_ceil(100);
        let tail = waiting.tail.as_secs_f64();
        let rest = (total - slow as f64 * tail).max(0.0) / (n - slow).max(1) as f64;
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.sum_s += total;
        counts.wake_ups += n;
        counts.buckets[bucket(tail)] += slow;
        counts.buckets[bucket(rest)] += n - slow;
    }
}

fn bound(bucket: usize) -> f64 {
    if bucket < BUCKETS { FIRST * (1_u64 << bucket) as f64 } else { f64::INFINITY }
}

fn bucket(latency: f64) -> usize {
    (0..BUCKETS).find(|&bucket| latency <= bound(bucket)).unwrap_or(BUCKETS)
}

impl TypedMetric for Latency {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Latency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets: Vec<_> = counts.buckets.iter().enumerate().map(|(i, &n)| (bound(i), n)).collect();
        encoder.encode_histogram::<NoLabelSet>(counts.sum_s, counts.wake_ups, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_policy::WaitingSource;

    use super::*;

    fn waiting(wake_ups: u64, total_us: u64, tail_us: u64) -> Waiting {
        let (total, tail) = (Duration::from_micros(total_us), Duration::from_micros(tail_us));
        Waiting { wake_ups, total, tail, source: WaitingSource::Traced }
    }

    fn counts(of: &[Waiting]) -> (u64, f64, Vec<(f64, u64)>) {
        let latency = Latency::default();
        for waiting in of {
            latency.add(waiting);
        }
        let counts = latency.0.lock().unwrap();
        let filled = counts.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        (counts.wake_ups, counts.sum_s, filled.map(|(i, n)| (bound(i), *n)).collect())
    }

    #[test]
    fn number_and_sum_are_exact_and_the_tail_has_its_own_bucket() {
        // 198 wake-ups of 5 us and 2 of 1 ms.
        let (n, sum, filled) = counts(&[waiting(200, 198 * 5 + 2 * 1000, 1000)]);
        assert_eq!((n, filled), (200, vec![(8e-6, 198), (1.024e-3, 2)]));
        assert!((sum - 2.99e-3).abs() < 1e-12, "{sum}");
    }

    #[test]
    fn an_estimate_has_no_spread_and_one_wake_up_is_its_own_tail() {
        assert_eq!(counts(&[waiting(150, 150 * 40, 40)]).2, [(6.4e-5, 150)]);
        assert_eq!(counts(&[waiting(1, 3, 3)]).2, [(4e-6, 1)]);
    }

    #[test]
    fn numbers_that_do_not_fit_each_other_are_no_negative_latencies() {
        // A tail from a histogram is rounded up, so it can be larger than the sum.
        assert_eq!(counts(&[waiting(2, 10, 11)]).2, [(2e-6, 1), (1.6e-5, 1)]);
        assert_eq!(counts(&[waiting(0, 0, 0)]), (0, 0.0, vec![]));
        let long = Waiting { total: Duration::MAX, tail: Duration::MAX, ..waiting(1, 0, 0) };
        assert_eq!(counts(&[long]).2, [(f64::INFINITY, 1)]);
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        assert_eq!((bucket(2e-6), bucket(2.1e-6), bucket(0.0)), (0, 1, 0));
        assert_eq!((bucket(bound(BUCKETS - 1)), bucket(0.07)), (BUCKETS - 1, BUCKETS));
    }
}
