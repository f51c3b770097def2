//! The statistics of a comparison: medians, percentile bootstrap intervals and paired ratios.
//!
//! Throughput on a shared machine is skewed and its outliers are one-sided, so the median stands for a sample and
//! the bootstrap (Efron & Tibshirani, *An Introduction to the Bootstrap*, 1993, ch. 13) gives its interval without
//! assuming a distribution. Ratios are paired per round: both values of a ratio were measured within the same short
//! time, so a slow drift of the machine cancels out.

use serde::{Deserialize, Serialize};

/// How many times the bootstrap draws. The standard error of a 2.5 % tail is then about 0.16 %.
const RESAMPLES: usize = 10_000;

/// A small deterministic generator (`SplitMix64`; Steele, Lea & Flood, OOPSLA 2014): the same seed gives the same
/// order of measurements and the same intervals.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator that repeats itself for the same `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 if `bound` is 0. The bias of the multiplication is below 2⁻⁵⁰ for the small bounds
    /// used here.
    pub fn below(&mut self, bound: usize) -> usize {
        let product = u128::from(self.next_u64()) * bound as u128;
        usize::try_from(product >> 64).unwrap_or_default()
    }

    /// Brings `items` into a random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// A median with its 95 % percentile bootstrap interval, in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median of the values.
    pub median: f64,
    /// The 2.5 % quantile of the resampled medians.
    pub low: f64,
    /// The 97.5 % quantile of the resampled medians.
    pub high: f64,
    /// How many values there were.
    pub n: usize,
}

/// The median; the mean of the middle two for an even count. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

/// The range of the values relative to their median: (max − min) / median. `None` without values.
pub fn spread(values: &[f64]) -> Option<f64> {
    let max = values.iter().copied().max_by(f64::total_cmp)?;
    let min = values.iter().copied().min_by(f64::total_cmp)?;
    median(values).map(|median| (max - min) / median)
}

/// The median of `values` and its interval. `None` without values. With five or fewer values the interval is their
/// whole range, which is all that so few values can say.
pub fn estimate(values: &[f64], seed: u64) -> Option<Estimate> {
    let median = median(values)?;
    let mut rng = Rng::new(seed);
    let mut resample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            for slot in &mut resample {
                *slot = values[rng.below(values.len())];
            }
            resample.sort_by(f64::total_cmp);
            median_of_sorted(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let tail = RESAMPLES / 40;
    Some(Estimate { median, low: medians[tail - 1], high: medians[RESAMPLES - tail], n: values.len() })
}

/// The ratios `values[round] / base[round]` of the rounds in which both were measured.
pub fn ratios(values: &[Option<f64>], base: &[Option<f64>]) -> Vec<f64> {
    values
        .iter()
        .zip(base)
        .filter_map(|(value, base)| Some((*value)? / (*base)?))
        .filter(|ratio| ratio.is_finite())
        .collect()
}

/// The median of the per-round [`ratios`] and its interval. `None` if no round has both values.
pub fn paired_ratio(values: &[Option<f64>], base: &[Option<f64>], seed: u64) -> Option<Estimate> {
    estimate(&ratios(values, base), seed)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some(f64::midpoint(sorted[middle - 1], upper)) }
}
