//! The Mann-Whitney test: are the values of one sample larger than those of another?

use serde::{Deserialize, Serialize};

use super::median::sorted;
use super::{Estimate, rank};

/// Largest total number of values for which the exact distribution is computed; beyond it, the normal
/// approximation is good to three digits.
const MAX_EXACT: usize = 40;

/// Result of the Mann-Whitney test (Mann & Whitney, Annals of Mathematical Statistics 18, 1947).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MannWhitney {
    /// Number of pairs of a value and another one in which the value is larger; ties count half.
    pub u: f64,
    /// Probability of such a U or a more extreme one for a single distribution; two-sided, 0..=1.
    pub p: f64,
    /// Whether `p` is exact (even with ties) or the normal approximation, corrected for ties and continuity.
    pub exact: bool,
}

/// Compares the samples `values` and `others`. `None` if one of them is empty.
pub fn mann_whitney(values: &[f64], others: &[f64]) -> Option<MannWhitney> {
    if values.is_empty() || others.is_empty() {
        return None;
    }
    let ranks = rank::doubled(&[values, others].concat());
    let sum: usize = ranks[..values.len()].iter().sum();
    let u = (sum - values.len() * (values.len() + 1)) as f64 / 2.0;
    if ranks.len() <= MAX_EXACT {
        let p = rank::two_sided(&rank::sums_of_size(&ranks, values.len()), sum);
        return Some(MannWhitney { u, p, exact: true });
    }
    let (pairs, all) = ((values.len() * others.len()) as f64, ranks.len() as f64);
    let tied: f64 = rank::ties(&ranks).iter().map(|&size| (size * size * size - size) as f64).sum();
    let variance = pairs / 12.0 * (all + 1.0 - tied / (all * (all - 1.0)));
    let p = rank::two_sided_normal(u - pairs / 2.0, variance, 1.0);
    Some(MannWhitney { u, p, exact: false })
}

/// Typical ratio of `values` to `others`, which were not measured in pairs: the median of the ratios of all
/// pairs (Hodges & Lehmann, Annals of Mathematical Statistics 34, 1963), with the interval that inverts the
/// Mann-Whitney test. No value is negative. If both samples are too small for a 95 % interval, it is their
/// whole range, with [`Estimate::confidence`] as its coverage; `n` is the size of the smaller one. `None` if
/// one is empty or no ratio is finite.
pub fn unpaired_ratio(values: &[f64], others: &[f64]) -> Option<Estimate> {
    let ratios = values.iter().flat_map(|value| others.iter().map(move |other| value / other));
    let ratios = sorted(&ratios.filter(|ratio| ratio.is_finite()).collect::<Vec<f64>>());
    let (last, middle) = (ratios.len().checked_sub(1)?, ratios.len() / 2);
    let (pairs, all) = ((values.len() * others.len()) as f64, values.len() + others.len());
    let (left_out, confidence) = if all <= MAX_EXACT {
        // U is the sum of the ranks minus its smallest possible value.
        let smallest = values.len() * (values.len() + 1) / 2;
        let sums = rank::sums_of_size(&(1..=all).collect::<Vec<usize>>(), values.len());
        rank::left_out(&sums[smallest..])
    } else {
        rank::left_out_normal(pairs / 2.0, pairs * (all + 1) as f64 / 12.0)
    };
    // Ratios to 0 are missing: then the interval is the range of the others.
    let left_out = if left_out < middle { left_out } else { 0 };
    let median = (ratios[last - middle] * ratios[middle]).sqrt();
    let (low, high) = (ratios[left_out], ratios[last - left_out]);
    Some(Estimate { median, low, high, n: values.len().min(others.len()), confidence })
}
