//! Caveats about a sample: outliers and drift. Nothing is ever dropped.

use serde::{Deserialize, Serialize};

use super::median::median;
use super::rank;

/// Modified z-score from which a value is an outlier.
const OUTLIER_Z: f64 = 3.5;

/// Largest number of values without ties for which the exact distribution is computed.
const MAX_EXACT: usize = 30;

/// A value far from the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outlier {
    /// Index of the value, from 0.
    pub index: usize,
    /// The value.
    pub value: f64,
    /// Its modified z-score: above 3.5 or below −3.5.
    pub score: f64,
}

/// The outliers among `values` by the modified z-score (Iglewicz & Hoaglin, *How to Detect and Handle
/// Outliers*, ASQC 1993, 3.3): the distance from the median in units of the median absolute deviation, or of
/// the mean absolute deviation if more than half of the values are equal.
pub fn outliers(values: &[f64]) -> Vec<Outlier> {
    let Some(centre) = median(values) else { return Vec::new() };
    let deviations: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    let mean = deviations.iter().sum::<f64>() / deviations.len() as f64;
    // Both estimate one standard deviation if the values are normally distributed.
    let unit = match median(&deviations) {
        Some(median) if median > 0.0 => median / 0.6745,
        _ => 1.253_314 * mean,
    };
    let outlier = |(index, &value): (usize, &f64)| {
        let score = (value - centre) / unit;
        (score.abs() > OUTLIER_Z).then_some(Outlier { index, value, score })
    };
    values.iter().enumerate().filter_map(outlier).collect()
}

/// Trend of values over time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Kendall's rank correlation of value and time, −1..=1; 0 is no trend.
    pub tau: f64,
    /// Probability of such a correlation or a stronger one without a trend; two-sided, 0..=1.
    pub p: f64,
    /// Change from the first to the last value along the typical slope, relative to the median.
    pub change: f64,
}

/// Tests `values`, in the order of measurement, for a trend (Mann, Econometrica 13, 1945; with the slope of
/// Theil and Sen, Journal of the American Statistical Association 63, 1968). `None` for fewer than three
/// values, or if the median is 0.
pub fn drift(values: &[f64]) -> Option<Drift> {
    let (n, centre) = (values.len(), median(values)?);
    if n < 3 || centre == 0.0 {
        return None;
    }
    let (mut rises, mut falls, mut slopes) = (0_usize, 0_usize, Vec::new());
    for (i, a) in values.iter().enumerate() {
        for (j, b) in values.iter().enumerate().skip(i + 1) {
            rises += usize::from(b > a);
            falls += usize::from(b < a);
            slopes.push((b - a) / (j - i) as f64);
        }
    }
    let (pairs, s) = (slopes.len() as f64, rises as f64 - falls as f64);
    let ties = rank::ties(&rank::doubled(values));
    let p = if ties.is_empty() && n <= MAX_EXACT {
        rank::two_sided(&inversions(n), falls)
    } else {
        let term = |count: usize| (count * (count - 1) * (2 * count + 5)) as f64;
        let variance = (term(n) - ties.iter().map(|&size| term(size)).sum::<f64>()) / 18.0;
        rank::two_sided_normal(s, variance, 2.0)
    };
    let change = median(&slopes)? * (n - 1) as f64 / centre;
    Some(Drift { tau: s / pairs, p, change })
}

/// Probability of each number of inversions in a random order of `n` values (Knuth, TAOCP 3, 5.1.1): the k-th
/// value is inserted before 0 to k − 1 of the earlier ones, each equally likely.
fn inversions(n: usize) -> Vec<f64> {
    let mut probability = vec![1.0];
    for count in 2..=n {
        let mut next = vec![0.0; probability.len() + count - 1];
        for (inversions, p) in probability.iter().enumerate() {
            for more in 0..count {
                next[inversions + more] += p / count as f64;
            }
        }
        probability = next;
    }
    probability
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_counted_by_their_inversions() {
        // Of the 24 orders of 4 values 1, 3, 5, 6, 5, 3, 1 have 0 to 6 inversions.
        let counts: Vec<f64> = inversions(4).iter().map(|p| (p * 24.0).round()).collect();
        assert_eq!(counts, [1.0, 3.0, 5.0, 6.0, 5.0, 3.0, 1.0]);
    }
}
