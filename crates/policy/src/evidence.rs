//! Evidence from pairs of blocks: a confidence sequence, which is valid after every pair.
//!
//! The logarithms of the pairs' ratios are compared with Robbins' normal-mixture boundary (Robbins 1970;
//! Howard, Ramdas and others 2021, section 3.2). It holds for all numbers of pairs at once, so stopping as soon
//! as the evidence suffices costs no confidence. The spread is that of blocks of equal settings (see
//! [`Noise`](crate::noise::Noise)), and of the pairs themselves once there are enough; outliers are clipped.

use serde::{Deserialize, Serialize};

use crate::progress::Signal;

/// The share of trials in which the true ratio is allowed to leave the confidence sequence, if they are the first of their kind.
pub(crate) const ERROR_RATE: f64 = 0.02;
/// How many pairs the mixture's own variance stands for: the boundary is tightest near ten times as many.
const MIXTURE_PAIRS: f64 = 4.0;
/// Pairs further from the median than this many standard deviations are clipped to it: something else happened
/// in them.
const CLIP_DEVIATIONS: f64 = 3.5;
/// From this many pairs on, their own spread is used as well.
const MIN_PAIRS_FOR_SPREAD: usize = 6;
/// For a normal distribution, the median absolute deviation divided by the standard deviation.
pub(crate) const MAD_PER_SIGMA: f64 = 0.6745;

/// The outcome of a comparison: progress under the candidate divided by progress under the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The signal compared.
    pub signal: Signal,
    /// The geometric mean of the ratios of the pairs.
    pub ratio: f64,
    /// The lower end of its confidence sequence.
    pub low: f64,
    /// The upper end of its confidence sequence.
    pub high: f64,
    /// The number of pairs of blocks.
    pub pairs: u32,
}

impl Evidence {
    /// The evidence in `ratios` (logarithms, one per pair) of `signal`, where pairs of equal settings have the
    /// standard deviation `spread`; `None` without a pair. `low` is the lower end of a confidence sequence with this two-sided
    /// `error`, `high` the upper end of one with [`ERROR_RATE`]: a repeated trial takes a stricter proof, not a stricter
    /// refutation.
    pub(crate) fn of(signal: Signal, ratios: &[f64], spread: f64, error: f64) -> Option<Self> {
        if ratios.is_empty() {
            return None;
        }
        let n = ratios.len() as f64;
        let center = median(ratios.to_vec());
        let own = median(ratios.iter().map(|r| (r - center).abs()).collect()) / MAD_PER_SIGMA;
        let spread = if ratios.len() < MIN_PAIRS_FOR_SPREAD { spread } else { spread.max(own) };
        let clip = CLIP_DEVIATIONS * spread;
        let mean = ratios.iter().map(|r| r.clamp(center - clip, center + clip)).sum::<f64>() / n;
        let below = spread * half_width(n, error);
        let above = spread * half_width(n, ERROR_RATE);
        Some(Self {
            signal,
            ratio: mean.exp(),
            low: (mean - below).exp(),
            high: (mean + above).exp(),
            pairs: u32::try_from(ratios.len()).unwrap_or(u32::MAX),
        })
    }

    /// Whether the candidate is shown to be better by the signal's margin, so that the change is worth it.
    pub fn proves(&self) -> bool {
        self.low > 1.0 + self.signal.margin()
    }

    /// Whether a gain of the signal's margin is ruled out.
    pub fn refutes(&self) -> bool {
        self.high < 1.0 + self.signal.margin()
    }

    /// Whether a loss of more than the margin is ruled out.
    pub(crate) fn is_not_lower(&self) -> bool {
        self.low > 1.0 - self.signal.margin()
    }

    /// Whether the estimate is better by half of the signal's margin, be it significant or not.
    pub(crate) fn seems_better(&self) -> bool {
        self.ratio > 1.0 + self.signal.margin() / 2.0
    }

    /// Whether there are enough pairs for their own spread to be known.
    pub(crate) fn has_known_spread(&self) -> bool {
        self.pairs as usize >= MIN_PAIRS_FOR_SPREAD
    }

    /// Whether the estimate is better by more than its standard error, which is about an eighth of the
    /// sequence's width.
    pub(crate) fn is_beyond_chance(&self) -> bool {
        self.seems_better() && self.ratio.powi(5) > self.high
    }

    /// Whether the estimate is no worse than half of the signal's margin, and the spread is known.
    pub(crate) fn seems_unchanged(&self) -> bool {
        self.has_known_spread() && self.ratio > 1.0 - self.signal.margin() / 2.0
    }

    /// Whether the candidate is shown to be worse, by half of the signal's margin or more as far as it is known.
    pub(crate) fn is_harm(&self) -> bool {
        self.is_lower() && self.seems_worse()
    }

    /// Whether the estimate is worse by half of the signal's margin, be it significant or not.
    pub(crate) fn seems_worse(&self) -> bool {
        self.ratio < 1.0 - self.signal.margin() / 2.0
    }

    /// Like [`Evidence::is_beyond_chance`], for the worse.
    pub(crate) fn is_worse_beyond_chance(&self) -> bool {
        self.seems_worse() && self.ratio.powi(5) < self.low
    }

    /// Whether the candidate is shown to be worse.
    pub(crate) fn is_lower(&self) -> bool {
        self.high < 1.0
    }

    /// Whether the candidate, proven before, is shown to be better again. Half the margin is enough, so that a
    /// gain near the margin does not come and go.
    pub fn confirms(&self) -> bool {
        self.low > 1.0 + self.signal.margin() / 2.0
    }
}

/// Half the width of the confidence sequence of a mean of `n` values, in standard deviations.
fn half_width(n: f64, error: f64) -> f64 {
    let mixed = n + MIXTURE_PAIRS;
    (mixed * ((mixed / MIXTURE_PAIRS).ln() - 2.0 * error.ln())).sqrt() / n
}

/// The median; 0 for no values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: &[f64], spread: f64) -> Evidence {
        Evidence::of(Signal::Moved, ratios, spread, ERROR_RATE).unwrap()
    }

    #[test]
    fn a_smaller_error_takes_more_to_prove_and_as_much_to_refute() {
        let ratios = [0.3; 4];
        let strict = Evidence::of(Signal::Moved, &ratios, 0.1, ERROR_RATE / 64.0).unwrap();
        let first = of(&ratios, 0.1);
        assert!(first.proves() && !strict.proves(), "{first:?} {strict:?}");
        assert!((first.high - strict.high).abs() < 1e-9 && (first.ratio - strict.ratio).abs() < 1e-9);
    }

    #[test]
    fn a_large_gain_is_proven_by_three_pairs_and_a_small_one_needs_many() {
        assert!(of(&[0.7; 3], 0.1).proves());
        assert!(!of(&[0.1; 3], 0.1).proves());
        assert!(of(&[0.1; 200], 0.1).proves());
    }

    #[test]
    fn no_gain_is_refuted_in_the_end_and_a_loss_soon() {
        assert!(!of(&[0.0; 10], 0.1).refutes());
        assert!(of(&[0.0; 200], 0.1).refutes());
        assert!(of(&[-0.4; 3], 0.1).refutes());
    }

    #[test]
    fn one_wild_pair_decides_nothing() {
        let mut ratios = vec![0.0; 9];
        ratios.push(3.0);
        let e = of(&ratios, 0.05);
        assert!(e.ratio < 1.02 && !e.proves(), "{e:?}");
    }

    #[test]
    fn noise_that_was_not_known_widens_the_sequence() {
        let noisy: Vec<_> = (0..10).map(|i| if i % 2 == 0 { 0.4 } else { -0.2 }).collect();
        assert!(of(&noisy, 0.02).low < 0.9);
    }

    /// Checking after every pair must not raise the error: the promise of a confidence sequence.
    #[test]
    fn checking_after_every_pair_is_wrong_in_a_fiftieth_of_trials_at_most() {
        let (mut state, trials) = (0x2545_F491_4F6C_DD1D_u64, 2000);
        let mut normal = || {
            // Sums of twelve uniform numbers, from a fixed sequence (xorshift64).
            let uniform = |_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) as f64 / (1_u64 << 53) as f64
            };
            (0..12).map(uniform).sum::<f64>() - 6.0
        };
        let mut wrong = 0;
        for _ in 0..trials {
            let mut ratios = Vec::new();
            let excluded = (0..100).any(|_| {
                ratios.push(0.1 * normal());
                let e = of(&ratios, 0.1);
                e.low > 1.0 || e.high < 1.0
            });
            wrong += i32::from(excluded);
        }
        assert!(wrong <= trials / 50, "{wrong} of {trials}");
    }
}
