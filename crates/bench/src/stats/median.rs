//! The median of a sample, and the interval that covers the true one in 95 of 100 cases.
//!
//! The percentile bootstrap does not reach its 95 % with the few samples that a benchmark has (`docs/statistics.md`
//! has the measured table), so the interval comes from order statistics. How many of `n` values lie below the true
//! median is a binomial with p = ½ whatever the distribution is, so that the `k`-th smallest and the `k`-th largest
//! value enclose it with a known probability; between two neighbouring `k` the ends are interpolated
//! (Hettmansperger & Sheather, *Confidence intervals based on interpolated order statistics*, Statistics &
//! Probability Letters 4, 1986). Nothing is drawn at random: equal samples have equal intervals.

use statrs::distribution::{Binomial, DiscreteCDF};

use super::{Estimate, LEVEL};

/// The median; the mean of the middle two for an even count. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    median_of_sorted(&sorted(values))
}

/// The index, in ascending order, of the least of `count` values that at least this share (0 to 1) of them do not exceed
/// (nearest rank). `None` without values.
pub fn nearest_rank(count: usize, share: f64) -> Option<usize> {
    // A product that is meant to be whole may come out a little above.
    let wanted = count as f64 * share - 1e-9;
    (0..count).find(|index| (index + 1) as f64 >= wanted)
}

/// The range of the values relative to their median: (max − min) / median. `None` without values.
pub fn spread(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let (min, max) = (sorted.first()?, sorted.last()?);
    median_of_sorted(&sorted).map(|median| (max - min) / median)
}

/// The median of `values` with its 95 % interval. `None` without values. Five values or fewer cannot have such an
/// interval: then it is their whole range, and [`Estimate::confidence`] says how often that covers the true median.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let sorted = sorted(values);
    let (median, n) = (median_of_sorted(&sorted)?, sorted.len());
    let binomial = Binomial::new(0.5, n as u64).ok()?;
    // The largest k whose enclosing values still cover more than 95 %: fewer than k of the values are below the
    // median with a probability below 2.5 %. The values are counted from 1.
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
