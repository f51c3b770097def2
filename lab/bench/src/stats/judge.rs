//! The verdict on two modes: faster, slower, or no difference, by a rule declared before the measurement.
//!
//! A difference is claimed if all of these hold:
//!
//! 1. The 95 % interval of the [paired ratio](super::paired_ratio) does not contain 1.
//! 2. Wilcoxon's signed-rank test of the paired ratios or the Mann-Whitney test of the samples has p ≤ 0.01.
//!    The first needs eight rounds for that and is immune to drift; the second can do it with five, if all
//!    values of one mode lie above all of the other's.
//! 3. The ratio is at least 1 % away from 1: smaller ones are useless, and finer than the harness promises.
//!
//! So equal modes are wrongly distinguished in at most 2 of 100 comparisons (two tests at 1 %), for any
//! distribution of the values, because the order of modes within each round is random. Fewer than five rounds
//! cannot be judged.

use gleaner_proto::result::{Better, Verdict};
use serde::{Deserialize, Serialize};

use super::paired::{ratio, ratios, signed_rank};
use super::rank_sum::{mann_whitney, unpaired_ratio};
use super::{Estimate, MIN_ROUNDS};

/// Largest p value of a test that indicates a difference.
pub const SIGNIFICANCE: f64 = 0.01;

/// Smallest relevant difference, as a share of the baseline.
pub const RELEVANCE: f64 = 0.01;

/// Comparison of two modes by their rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The paired ratio mode / baseline.
    pub ratio: Estimate,
    /// p value of the Mann-Whitney test, 0..=1.
    pub rank_sum_p: f64,
    /// p value of Wilcoxon's signed-rank test, 0..=1; 1 if every ratio is 1.
    pub signed_rank_p: f64,
    /// Result of the declared rule.
    pub verdict: Verdict,
}

/// Compares the `values` of a mode with those of its `base`, by round. `better` is the direction of
/// improvement. `None` if no round has both values.
pub fn judge(values: &[Option<f64>], base: &[Option<f64>], better: Better) -> Option<Judgement> {
    let ratios = ratios(values, base);
    let ratio = ratio(&ratios)?;
    let present = |values: &[Option<f64>]| values.iter().flatten().copied().collect::<Vec<f64>>();
    let rank_sum_p = mann_whitney(&present(values), &present(base))?.p;
    let signed_rank_p = signed_rank(&ratios).map_or(1.0, |test| test.p);
    let verdict = verdict(&ratio, rank_sum_p.min(signed_rank_p), better);
    Some(Judgement { ratio, rank_sum_p, signed_rank_p, verdict })
}

/// Compares the samples of two runs, which have no rounds in common: by the same rule, but with the [unpaired
/// ratio](unpaired_ratio) and a single test. `None` if a sample is empty.
pub fn judge_unpaired(values: &[f64], base: &[f64], better: Better) -> Option<(Estimate, f64, Verdict)> {
    let ratio = unpaired_ratio(values, base)?;
    let p = mann_whitney(values, base)?.p;
    Some((ratio, p, verdict(&ratio, p, better)))
}

/// The declared rule.
fn verdict(ratio: &Estimate, p: f64, better: Better) -> Verdict {
    let shown = !ratio.contains(1.0) && p <= SIGNIFICANCE && (ratio.median - 1.0).abs() >= RELEVANCE;
    match better {
        _ if ratio.n < MIN_ROUNDS => Verdict::TooFew,
        _ if !shown => Verdict::NoDifference,
        Better::Neither => Verdict::Different,
        Better::Higher if ratio.median > 1.0 => Verdict::Better,
        Better::Lower if ratio.median < 1.0 => Verdict::Better,
        Better::Higher | Better::Lower => Verdict::Worse,
    }
}
