//! Ratios of values measured in the same round, so that slow drift of the machine cancels out.
//!
//! A ratio of two noisy times is symmetric on the logarithmic scale if both modes have the same kind of
//! noise. Then the pseudo-median (Hodges & Lehmann, Annals of Mathematical Statistics 34, 1963) has the same
//! centre as the median but needs fewer rounds, and the intervals that invert Wilcoxon's signed-rank test
//! have exact coverage for any number of rounds (Hollander, Wolfe & Chicken, *Nonparametric Statistical
//! Methods*, 3.1-3.3). If the modes are equal, symmetry is not even an assumption: exchanging them inverts
//! each ratio.

use serde::{Deserialize, Serialize};

use super::{Estimate, rank};

/// Largest number of pairs whose distribution is computed exactly; beyond it, the normal approximation is
/// good to four digits.
const MAX_EXACT: usize = 100;

/// Result of Wilcoxon's signed-rank test of paired ratios (Wilcoxon, Biometrics Bulletin 1, 1945).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SignedRank {
    /// Sum of the ranks of the ratios above 1, ranked by their distance from 1 on the logarithmic scale.
    pub w: f64,
    /// Probability of such a sum or a more extreme one without a difference; two-sided, 0..=1.
    pub p: f64,
    /// Whether `p` is exact (even with ties) or the normal approximation.
    pub exact: bool,
}

/// The ratios `values[round] / base[round]` of the rounds with both values.
pub fn ratios(values: &[Option<f64>], base: &[Option<f64>]) -> Vec<f64> {
    values
        .iter()
        .zip(base)
        .filter_map(|(value, base)| Some((*value)? / (*base)?))
        .filter(|ratio| ratio.is_finite())
        .collect()
}

/// The pseudo-median of the per-round [`ratios`] with its 95 % interval, see [`ratio`]. `None` if no round
/// has both values.
pub fn paired_ratio(values: &[Option<f64>], base: &[Option<f64>]) -> Option<Estimate> {
    ratio(&ratios(values, base))
}

/// The pseudo-median of `ratios` (none negative) with its 95 % interval; `None` without any. Inverse ratios
/// have the inverse result. Five ratios or fewer allow no 95 % interval: the result is then their whole
/// range, and [`Estimate::confidence`] is its coverage. Beyond five, the coverage is slightly above 95 %.
pub fn ratio(ratios: &[f64]) -> Option<Estimate> {
    let n = ratios.len();
    // The geometric means of all pairs, including each ratio with itself: Walsh averages on the logarithmic
    // scale, but immune to a ratio of 0.
    let mut means: Vec<f64> = Vec::with_capacity(n * (n + 1) / 2);
    for (index, a) in ratios.iter().enumerate() {
        means.extend(ratios[index..].iter().map(|b| (a * b).sqrt()));
    }
    means.sort_by(f64::total_cmp);
    let (last, middle) = (means.len().checked_sub(1)?, means.len() / 2);
    let median = (means[last - middle] * means[middle]).sqrt();
    let (left_out, confidence) = left_out(n);
    Some(Estimate { median, low: means[left_out], high: means[last - left_out], n, confidence })
}

/// For `n` values, how many pairs' means lie outside a 95 % interval at each end, and its true coverage.
fn left_out(n: usize) -> (usize, f64) {
    if n <= MAX_EXACT {
        return rank::left_out(&rank::sums_of_any(&(1..=n).collect::<Vec<usize>>()));
    }
    let pairs = (n * (n + 1)) as f64;
    rank::left_out_normal(pairs / 4.0, pairs * (2 * n + 1) as f64 / 24.0)
}

/// Tests whether `ratios` differ from 1. Ratios of exactly 1 carry no information and are left out, as by
/// Wilcoxon; `None` if none remain.
pub fn signed_rank(ratios: &[f64]) -> Option<SignedRank> {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).filter(|log| *log != 0.0).collect();
    let sizes: Vec<f64> = logs.iter().map(|log| log.abs()).collect();
    let ranks = rank::doubled(&sizes);
    let sum: usize = ranks.iter().zip(&logs).filter(|(_, log)| **log > 0.0).map(|(rank, _)| rank).sum();
    let w = sum as f64 / 2.0;
    match logs.len() {
        0 => None,
        n if n <= MAX_EXACT => {
            Some(SignedRank { w, p: rank::two_sided(&rank::sums_of_any(&ranks), sum), exact: true })
        }
        _ => {
            let mean: f64 = ranks.iter().map(|&rank| rank as f64 / 4.0).sum();
            let variance: f64 = ranks.iter().map(|&rank| (rank as f64 / 2.0).powi(2) / 4.0).sum();
            Some(SignedRank { w, p: rank::two_sided_normal(w - mean, variance, 1.0), exact: false })
        }
    }
}
