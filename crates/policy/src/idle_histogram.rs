//! A histogram of recent idle lengths, with decaying weights.

use std::time::Duration;

/// Sub-bins per doubling of the length.
const SUB_BINS: usize = 4;
/// Doublings covered: 1 µs · 2^20 is about 1 s.
const OCTAVES: usize = 20;
/// One bin below 1 µs, those of the octaves, and one for everything longer.
const BINS: usize = OCTAVES * SUB_BINS + 2;
/// A quarter of a microsecond: the width of the narrowest sub-bin.
const UNIT_NS: u64 = 250;
/// Long enough for thousands of short periods, short enough for a past phase of the workload to fade in seconds.
const HALF_LIFE: Duration = Duration::from_secs(2);
/// Weights below this are dropped: a thousandth of one idle period decides nothing.
const NEGLIGIBLE: f64 = 0.001;

/// The lengths of one vCPU's idle periods, in bins four to the octave from 1 µs to 1 s. A period's weight
/// halves with every half-life of observed time, so the histogram adapts to the workload.
///
/// Samples are summaries, as the kernel's files provide them (`/sys/devices/system/cpu/cpuN/cpuidle/stateM`:
/// `usage` and `time` of POLL and of the halting state): a number of periods and their mean length. A summary
/// goes into the one bin of its mean; only its count and sum are exact.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IdleHistogram {
    bins: [Bin; BINS],
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Bin {
    weight: f64,
    sum_ns: f64,
}

impl Bin {
    fn mean_ns(self) -> f64 {
        self.sum_ns / self.weight
    }
}

impl Default for IdleHistogram {
    fn default() -> Self {
        Self { bins: [Bin::default(); BINS] }
    }
}

impl IdleHistogram {
    /// Adds `count` idle periods of `mean` length, from becoming idle to having work again. A period that was
    /// polled up to a limit and then halted is *one* period; its length includes the polling. A `count` that is
    /// not positive adds nothing.
    pub(crate) fn add(&mut self, count: f64, mean: Duration) {
        let count = count.max(0.0);
        let bin = &mut self.bins[bin_of(mean)];
        bin.weight += count;
        bin.sum_ns += count * nanos(mean);
    }

    /// Ages the weights by `elapsed` of observed time.
    pub(crate) fn decay(&mut self, elapsed: Duration) {
        let factor = (-elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2();
        for bin in &mut self.bins {
            bin.weight *= factor;
            bin.sum_ns *= factor;
            if bin.weight < NEGLIGIBLE {
                *bin = Bin::default();
            }
        }
    }

    /// Adds the weights of `other`, for a limit that all vCPUs share.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (bin, other) in self.bins.iter_mut().zip(&other.bins) {
            bin.weight += other.weight;
            bin.sum_ns += other.sum_ns;
        }
    }

    /// Whether all weights have decayed.
    pub(crate) fn is_empty(&self) -> bool {
        self.bins.iter().all(|bin| bin.weight == 0.0)
    }

    /// The mean cost of an idle period when the vCPU polls up to `limit` and then halts, in nanoseconds of
    /// waiting. A period of length x costs x · `poll_price` if x ≤ `limit`, else `limit` · `poll_price` +
    /// `wake_cost`; `poll_price` is what one µs of polling costs in µs of waiting. Zero if the histogram is empty.
    pub(crate) fn expected_cost_ns(&self, limit: Duration, wake_cost: Duration, poll_price: f64) -> f64 {
        let (limit_ns, wake_cost_ns) = (nanos(limit), nanos(wake_cost));
        let (mut cost, mut weight) = (0.0, 0.0);
        for bin in self.bins.iter().filter(|bin| bin.weight > 0.0) {
            cost += if bin.mean_ns() <= limit_ns {
                bin.sum_ns * poll_price
            } else {
                bin.weight * (limit_ns * poll_price + wake_cost_ns)
            };
            weight += bin.weight;
        }
        if weight > 0.0 { cost / weight } else { 0.0 }
    }

    /// The upper edges of the bins in use, ascending: the limits worth considering. The last bin has no edge.
    pub(crate) fn edges(&self) -> impl Iterator<Item = Duration> + '_ {
        (0..BINS - 1).filter(|&i| self.bins[i].weight > 0.0).map(upper_edge)
    }
}

fn nanos(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}

/// The bin for `length`, in integers so that it is the same on every machine; the four sub-bins of an octave
/// are equally wide.
fn bin_of(length: Duration) -> usize {
    let units = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX) / UNIT_NS;
    let Some(octave) = units.checked_ilog2().and_then(|log| log.checked_sub(SUB_BINS.ilog2())) else {
        return 0;
    };
    // The leading bits of `units`: SUB_BINS..2 * SUB_BINS.
    let leading = usize::try_from(units >> octave).unwrap_or(usize::MAX);
    let bin = 1 + octave as usize * SUB_BINS + (leading - SUB_BINS);
    bin.min(BINS - 1)
}

/// The exclusive upper edge of every bin but the last.
fn upper_edge(bin: usize) -> Duration {
    let (octave, sub_bin) = (bin / SUB_BINS, bin % SUB_BINS);
    Duration::from_nanos(UNIT_NS * ((SUB_BINS + sub_bin) << octave) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: Duration = Duration::from_micros(1);
    const NS: Duration = Duration::from_nanos(1);

    /// The number of idle periods, with decayed weights.
    fn total(h: &IdleHistogram) -> f64 {
        h.bins.iter().map(|bin| bin.weight).sum()
    }

    #[test]
    fn bins_are_four_to_the_octave_from_1_us_to_1_s() {
        for (length, bin) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(999), 0),
            (US, 1),
            (US * 5 / 4, 2),
            (US * 2, 5),
            (Duration::from_nanos((1 << 20) * 1000 - 1), BINS - 2),
            (US * (1 << 20), BINS - 1),
            (Duration::MAX, BINS - 1),
        ] {
            assert_eq!(bin_of(length), bin, "{length:?}");
        }
    }

    #[test]
    fn an_edge_separates_its_bin_from_the_next() {
        for bin in 0..BINS - 1 {
            let edge = upper_edge(bin);
            assert_eq!((bin_of(edge.saturating_sub(NS)), bin_of(edge)), (bin, bin + 1), "{edge:?}");
        }
    }

    #[test]
    fn a_half_life_halves_the_weights_and_keeps_the_lengths() {
        let mut h = IdleHistogram::default();
        h.add(100.0, US * 30);
        h.decay(Duration::ZERO);
        assert!((total(&h) - 100.0).abs() < 1e-9);
        h.decay(Duration::from_secs(2));
        assert!((total(&h) - 50.0).abs() < 1e-9);
        assert!((h.bins[bin_of(US * 30)].mean_ns() - 30_000.0).abs() < 1e-6);
        h.decay(Duration::from_secs(60));
        assert!(h.is_empty());
    }

    #[test]
    fn the_cost_is_the_polling_and_for_longer_periods_also_the_wake_up() {
        let mut h = IdleHistogram::default();
        h.add(3.0, US * 10);
        h.add(1.0, US * 500);
        // (3 · 10 · 0.5 + 20 · 0.5 + 40) / 4
        assert!((h.expected_cost_ns(US * 20, US * 40, 0.5) - 16_250.0).abs() < 1e-6);
        assert!((h.expected_cost_ns(Duration::ZERO, US * 40, 0.5) - 40_000.0).abs() < 1e-6);
        assert!(IdleHistogram::default().expected_cost_ns(US, US, 1.0).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn a_merged_histogram_has_the_periods_of_both(
            a in proptest::collection::vec((1u32..1000, 0u64..2_000_000_000), 0..20),
            b in proptest::collection::vec((1u32..1000, 0u64..2_000_000_000), 0..20),
        ) {
            let fill = |samples: &[(u32, u64)]| {
                let mut h = IdleHistogram::default();
                for &(n, ns) in samples {
                    h.add(f64::from(n), Duration::from_nanos(ns));
                }
                h
            };
            let mut merged = fill(&a);
            merged.merge(&fill(&b));
            let both = fill(&[a, b].concat());
            prop_assert!((total(&merged) - total(&both)).abs() < 1e-6);
            prop_assert_eq!(merged.edges().collect::<Vec<_>>(), both.edges().collect::<Vec<_>>());
        }
    }
}
