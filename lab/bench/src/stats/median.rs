//! The median of a sample, and an interval that covers the true median in 95 of 100 cases.
//!
//! The percentile bootstrap does not reach 95 % with the few samples of a benchmark (`docs/statistics.md` has
//! the measured table), so the interval uses order statistics. How many of `n` values lie below the true
//! median is binomial with p = ½ for any distribution, so the `k`-th smallest and the `k`-th largest value
//! enclose it with a known probability; between two adjacent `k`, the ends are interpolated (Hettmansperger &
//! Sheather, *Confidence intervals based on interpolated order statistics*, Statistics & Probability Letters
//! 4, 1986). Nothing is random: equal samples have equal intervals.

use statrs::distribution::{Binomial, DiscreteCDF};

use super::{Estimate, LEVEL};

/// The median; for an even count, the mean of the middle two. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    median_of_sorted(&sorted(values))
}

/// Index, in ascending order, of the smallest of `count` values that is at least as large as this share
/// (0..=1) of them (nearest rank). `None` without values.
pub fn nearest_rank(count: usize, share: f64) -> Option<usize> {
    // Rounding can push a product that should be whole slightly above it.
    let wanted = count as f64 * share - 1e-9;
    (0..count).find(|index| (index + 1) as f64 >= wanted)
}

/// Range of the values relative to their median: (max − min) / median. `None` without values.
pub fn spread(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let (min, max) = (sorted.first()?, sorted.last()?);
    median_of_sorted(&sorted).map(|median| (max - min) / median)
}

/// The median of `values` with its 95 % interval. `None` without values. Five values or fewer allow no such
/// interval: the result is then their whole range, and [`Estimate::confidence`] is its coverage.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let sorted = sorted(values);
    let (median, n) = (median_of_sorted(&sorted)?, sorted.len());
    let binomial = Binomial::new(0.5, n as u64).ok()?;
    // The largest k whose enclosing values still cover more than 95 %: the probability that fewer than k
    // values (counted from 1) are below the median is below 2.5 %.
    let k = usize::try_from(binomial.inverse_cdf((1.0 - LEVEL) / 2.0)).unwrap_or(0);
    if k == 0 {
        let confidence = 1.0 - 2.0 * binomial.cdf(0);
        return Some(Estimate { median, low: sorted[0], high: sorted[n - 1], n, confidence });
    }
    let coverage = |k: usize| 1.0 - 2.0 * binomial.cdf(k as u64 - 1);
    let (wide, narrow) = (coverage(k), coverage(k + 1));
    let share = (wide - LEVEL) / (wide - narrow);
    let inner = (n - k) as f64 * share / (k as f64 + (n - 2 * k) as f64 * share);
    let between = |outer: f64, next: f64| outer + inner * (next - outer);
    let low = between(sorted[k - 1], sorted[k]);
    let high = between(sorted[n - k], sorted[n - k - 1]);
    Some(Estimate { median, low, high, n, confidence: LEVEL })
}

pub(super) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some(f64::midpoint(sorted[middle - 1], upper)) }
}
