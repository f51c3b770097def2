//! Histograms of lengths of time, as filled by the BPF programs of `gleaner_trace` (`hist.bpf.h` there has their buckets).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// log2 of the buckets per power of two.
pub const SUB_BITS: u32 = 3;

/// Number of buckets, the open-ended one included.
pub const BUCKETS: u16 = 256;

/// Lengths of time in buckets, eight per power of two of nanoseconds, so that a bucket's width is at most an eighth of
/// its value. Lengths from about 16 s on share one open-ended bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Number of lengths.
    pub count: u64,
    /// Exact sum of the lengths, in ns.
    pub total_ns: u64,
    /// Number of lengths by bucket, without the empty buckets.
    pub buckets: BTreeMap<u16, u64>,
}

impl Histogram {
    /// From the fields of a `struct hist`.
    pub fn new(count: u64, total_ns: u64, buckets: &[u64]) -> Self {
        let buckets = (0..).zip(buckets.iter().copied()).filter(|(_, n)| *n > 0).collect();
        Self { count, total_ns, buckets }
    }

    /// The mean; zero if empty.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.total_ns.checked_div(self.count).unwrap_or_default())
    }

    /// The sum of all lengths.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total_ns)
    }

    /// The length that a share `q` (0..=1) does not exceed, interpolated within its bucket; `None` if empty.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let sum = self.buckets.values().copied().fold(0, u64::saturating_add);
        let wanted = q.clamp(0.0, 1.0) * sum as f64;
        let mut below = 0.0;
        for (&bucket, &n) in &self.buckets {
            let n = n as f64;
            if n > 0.0 && below + n >= wanted {
                let (low, high) = bounds(bucket);
                let share = ((wanted - below) / n).clamp(0.0, 1.0);
                return Some(
                    Duration::from_nanos(low).mul_f64(1.0 - share)
                        + Duration::from_nanos(high).mul_f64(share),
                );
            }
            below += n;
        }
        None
    }

    /// The median; `None` if empty.
    pub fn median(&self) -> Option<Duration> {
        self.quantile(0.5)
    }

    /// Non-empty bins for drawing, four per power of two, in rising order: start, end and count.
    pub fn bins(&self) -> impl Iterator<Item = (Duration, Duration, u64)> {
        let mut pairs: BTreeMap<u16, u64> = BTreeMap::new();
        for (bucket, n) in &self.buckets {
            *pairs.entry(bucket / 2).or_default() += n;
        }
        let ends = |pair: u16| (bounds(2 * pair).0, bounds(2 * pair + 1).1);
        pairs.into_iter().map(move |(pair, n)| {
            let (low, high) = ends(pair);
            (Duration::from_nanos(low), Duration::from_nanos(high), n)
        })
    }

    /// Number of lengths above zero and below `limit`, to the precision of a bucket.
    pub fn below(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.buckets.iter().filter(|(bucket, _)| bounds(**bucket).1 <= limit).map(|(_, n)| n).sum()
    }

    /// By how much lengths exceed `limit`, summed over those that do, to the precision of a bucket.
    pub fn excess_over(&self, limit: Duration) -> Duration {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let excess = self.buckets.iter().map(|(&bucket, &n)| {
            let (low, high) = bounds(bucket);
            (low.midpoint(high)).saturating_sub(limit).saturating_mul(n)
        });
        Duration::from_nanos(excess.fold(0, u64::saturating_add)).min(self.total())
    }

    /// The difference from `earlier`, a histogram of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let old = |bucket: &u16| earlier.buckets.get(bucket).copied().unwrap_or_default();
        let grown = self.buckets.iter().map(|(bucket, n)| (*bucket, n.saturating_sub(old(bucket))));
        Self {
            count: self.count.saturating_sub(earlier.count),
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            buckets: grown.filter(|(_, n)| *n > 0).collect(),
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        // Records from elsewhere have any numbers.
        sum.count = sum.count.saturating_add(other.count);
        sum.total_ns = sum.total_ns.saturating_add(other.total_ns);
        for (bucket, n) in &other.buckets {
            let here = sum.buckets.entry(*bucket).or_default();
            *here = here.saturating_add(*n);
        }
        sum
    }
}

/// Start and (exclusive) end of a bucket, in ns.
fn bounds(bucket: u16) -> (u64, u64) {
    let sub = 1_u64 << SUB_BITS;
    let bucket = u64::from(bucket).min(u64::from(BUCKETS) - 1);
    if bucket < sub {
        return (bucket, bucket + 1);
    }
    let power = bucket / sub - 1;
    let width = 1_u64 << power;
    let low = (sub + bucket % sub) * width;
    (low, low + width)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as `bucket_of` in hist.bpf.h.
    fn bucket_of(ns: u64) -> u16 {
        let power = ns.checked_ilog2().unwrap_or_default();
        if power < SUB_BITS {
            return u16::try_from(ns).unwrap();
        }
        let bucket = ((power - SUB_BITS + 1) << SUB_BITS) + ((ns >> (power - SUB_BITS)) & 7) as u32;
        u16::try_from(bucket).unwrap().min(255)
    }

    fn of(lengths: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        for ns in lengths {
            histogram.count += 1;
            histogram.total_ns += ns;
            *histogram.buckets.entry(bucket_of(ns)).or_default() += 1;
        }
        histogram
    }

    #[test]
    fn buckets_join_and_hold_what_falls_into_them() {
        let mut end = 0;
        for bucket in 0..255 {
            let (low, high) = bounds(bucket);
            assert_eq!((low, bucket_of(low), bucket_of(high - 1)), (end, bucket, bucket));
            end = high;
        }
        assert!(end > 10_000_000_000, "{end}");
    }

    #[test]
    fn bins_join_and_hold_everything() {
        let histogram = of(1..=10_000);
        let bins: Vec<(Duration, Duration, u64)> = histogram.bins().collect();
        assert_eq!(bins.iter().map(|bin| bin.2).sum::<u64>(), 10_000);
        assert!(bins.windows(2).all(|pair| pair[0].1 == pair[1].0), "{bins:?}");
        let at = |ns| bins.iter().find(|bin| bin.0 == Duration::from_nanos(ns)).unwrap();
        assert_eq!((at(1024).1, at(1024).2), (Duration::from_nanos(1280), 256));
    }

    #[test]
    fn quantiles_are_within_an_eighth() {
        let histogram = of(1..=10_000);
        for (q, exact) in [(0.01, 100.0), (0.5, 5000.0), (0.99, 9900.0)] {
            let found = histogram.quantile(q).unwrap().as_nanos() as f64;
            assert!((found / exact - 1.0).abs() < 0.125, "{q}: {found} for {exact}");
        }
        assert_eq!(histogram.mean(), Duration::from_micros(5));
        assert_eq!(Histogram::default().quantile(0.5), None);
        // In a file from elsewhere.
        let empty = Histogram { buckets: BTreeMap::from([(3, 0)]), ..Histogram::default() };
        assert_eq!(empty.quantile(0.5), None);
    }

    #[test]
    fn counts_what_is_short_and_sums_what_is_too_long() {
        let histogram = of([100, 100, 100_000]);
        assert_eq!(histogram.below(Duration::from_micros(1)), 2);
        let excess = histogram.excess_over(Duration::from_micros(50));
        assert!((45_000..60_000).contains(&excess.as_nanos()), "{excess:?}");
    }

    #[test]
    fn a_difference_and_a_sum_undo_each_other() {
        let (a, b) = (of([5, 700, 9000]), of([700, 80_000]));
        assert_eq!(a.plus(&b).since(&a), b);
    }
}
