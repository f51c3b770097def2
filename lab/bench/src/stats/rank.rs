//! Ranks and the distribution of their sums: the common part of the rank tests.
//!
//! Ranks are doubled, so that the mean rank of tied values is an integer and the exact distribution of a sum
//! can be computed even with ties (the shift algorithm of Streitberg & Röhmel, Statistical Software
//! Newsletter 12, 1986).

use statrs::distribution::{ContinuousCDF, Normal};

use super::LEVEL;

/// Twice the rank of each value, in the order of the values; tied values get the mean of their ranks.
pub(super) fn doubled(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0; values.len()];
    let mut before = 0;
    for run in order.chunk_by(|&a, &b| values[a].total_cmp(&values[b]).is_eq()) {
        for &index in run {
            // The first rank of the run plus its last one, both counted from 1.
            ranks[index] = 2 * before + run.len() + 1;
        }
        before += run.len();
    }
    ranks
}

/// Sizes of the groups of tied values.
pub(super) fn ties(ranks: &[usize]) -> Vec<usize> {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).map(<[usize]>::len).filter(|&size| size > 1).collect()
}

/// Probability of each sum, if each of `ranks` is included with probability ½.
pub(super) fn sums_of_any(ranks: &[usize]) -> Vec<f64> {
    let mut probability = vec![0.0; ranks.iter().sum::<usize>() + 1];
    probability[0] = 1.0;
    for &rank in ranks {
        for sum in (0..probability.len()).rev() {
            let with = if sum >= rank { probability[sum - rank] } else { 0.0 };
            probability[sum] = f64::midpoint(probability[sum], with);
        }
    }
    probability
}

/// Probability of each sum of `size` of the `ranks`, if all choices are equally likely.
pub(super) fn sums_of_size(ranks: &[usize], size: usize) -> Vec<f64> {
    let mut ways = vec![vec![0.0; ranks.iter().sum::<usize>() + 1]; size + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for taken in (1..=size).rev() {
            let (before, after) = ways.split_at_mut(taken);
            for (sum, ways) in after[0].iter_mut().enumerate().skip(rank) {
                *ways += before[taken - 1][sum - rank];
            }
        }
    }
    let all: f64 = ways[size].iter().sum();
    ways[size].iter().map(|ways| ways / all).collect()
}

/// Two-sided p value of `observed`: the probability of a sum at least as far from the mean.
pub(super) fn two_sided(distribution: &[f64], observed: usize) -> f64 {
    let mean: f64 = distribution.iter().enumerate().map(|(sum, p)| sum as f64 * p).sum();
    // Sums are integers; the slack allows for rounding of the mean.
    let distance = (observed as f64 - mean).abs() - 0.25;
    let far = |sum: usize| (sum as f64 - mean).abs() >= distance;
    let p: f64 = distribution.iter().enumerate().filter(|(sum, _)| far(*sum)).map(|(_, p)| p).sum();
    p.min(1.0)
}

/// Two-sided p value of an approximately normal statistic that moves in whole `steps`: with Yates' continuity
/// correction of half a step. 1 without variance.
pub(super) fn two_sided_normal(distance: f64, variance: f64, step: f64) -> f64 {
    let z = (distance.abs() - step / 2.0).max(0.0) / variance.sqrt();
    if z.is_finite() { (2.0 * Normal::standard().sf(z)).min(1.0) } else { 1.0 }
}

/// How many of the ordered estimates of a rank test lie outside its 95 % interval at each end, and the
/// interval's true coverage. `distribution` is that of the test's statistic, counted from 0.
pub(super) fn left_out(distribution: &[f64]) -> (usize, f64) {
    let (mut below, mut left_out) = (0.0, 0);
    for (statistic, p) in distribution.iter().enumerate() {
        // The smallest value is outside every interval, even if that exceeds the tail.
        if statistic > 0 && below + p > (1.0 - LEVEL) / 2.0 {
            break;
        }
        below += p;
        left_out = statistic;
    }
    (left_out, 1.0 - 2.0 * below)
}

/// The same if the statistic is approximately normal.
pub(super) fn left_out_normal(mean: f64, variance: f64) -> (usize, f64) {
    let quantile = Normal::standard().inverse_cdf((1.0 - LEVEL) / 2.0);
    // Integers below the quantile, with continuity correction.
    let left_out = (mean + quantile * variance.sqrt() - 0.5).max(0.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the mean")]
    let left_out = left_out as usize;
    (left_out, LEVEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tied_values_share_the_mean_of_their_ranks() {
        // Ranks 1, 2.5, 2.5, 4, doubled, in the order of the values.
        assert_eq!(doubled(&[7.0, 3.0, 7.0, 9.0]), [5, 2, 5, 8]);
        assert_eq!(ties(&[5, 2, 5, 8]), [2]);
        assert_eq!(doubled(&[]), [0; 0]);
    }

    #[test]
    fn sums_are_counted_exactly() {
        // Coins for 1, 2, 3 (doubled 2, 4, 6): sums 0 1 2 3 3 4 5 6, each 1/8.
        let any = sums_of_any(&[2, 4, 6]);
        assert_eq!(any, [0.125, 0.0, 0.125, 0.0, 0.125, 0.0, 0.25, 0.0, 0.125, 0.0, 0.125, 0.0, 0.125]);
        // Two of three: 3, 4, 5, each 1/3.
        let two = sums_of_size(&[2, 4, 6], 2);
        assert!([6, 8, 10].iter().all(|&sum: &usize| (two[sum] - 1.0 / 3.0).abs() < 1e-15), "{two:?}");
        assert!((two_sided(&two, 6) - 2.0 / 3.0).abs() < 1e-12 && (two_sided(&two, 8) - 1.0).abs() < 1e-12);
    }
}
