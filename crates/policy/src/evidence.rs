//! What pairs of blocks say: a confidence sequence, which may be looked at after every pair.
//!
//! The logarithms of the ratios of the pairs are compared with Robbins' normal-mixture boundary (Robbins 1970; Howard,
//! Ramdas and others 2021, section 3.2): it holds for every number of pairs at once, so that deciding as
//! early as the numbers allow costs no confidence. Their spread comes from blocks of equal settings (see
//! [`Noise`](crate::noise::Noise)), and from the pairs themselves once there are enough; pairs far from the others
//! count as the limit of what is believed.

use serde::{Deserialize, Serialize};

use crate::progress::Signal;

/// The confidence sequence leaves out the true ratio, above or below, in this share of trials.
const ERROR: f64 = 0.02;
/// The boundary is tightest near this many pairs: large gains show within a few.
const TIGHTEST: f64 = 4.0;
/// A pair that is further from the median than so many spreads counts as that far: something else happened in it.
const FURTHEST: f64 = 3.0;
/// From so many pairs on their own spread is known as well.
const KNOWN_FROM: usize = 6;
/// The median of the distances from the median is this share of a normal distribution's standard deviation.
pub(crate) const MEDIAN_DISTANCE: f64 = 0.6745;

/// The outcome of a comparison: progress under the candidate divided by progress under the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was compared.
    pub signal: Signal,
    /// The geometric mean of the ratios of the pairs.
    pub ratio: f64,
    /// The lower end of its confidence sequence.
    pub low: f64,
    /// The upper end of its confidence sequence.
    pub high: f64,
    /// How many pairs of blocks.
    pub pairs: u32,
}

impl Evidence {
    /// What `ratios` (logarithms, one for each pair) say of `signal`, where pairs of equal settings have the standard
    /// deviation `spread`. `None` without a pair.
    pub(crate) fn of(signal: Signal, ratios: &[f64], spread: f64) -> Option<Self> {
        if ratios.is_empty() {
            return None;
        }
        let n = ratios.len() as f64;
        let center = median(ratios.to_vec());
        let own = median(ratios.iter().map(|r| (r - center).abs()).collect()) / MEDIAN_DISTANCE;
        let spread = if ratios.len() < KNOWN_FROM { spread } else { spread.max(own) };
        let far = FURTHEST * spread;
        let mean = ratios.iter().map(|r| r.clamp(center - far, center + far)).sum::<f64>() / n;
        let error = spread * half_width(n);
        Some(Self {
            signal,
            ratio: mean.exp(),
            low: (mean - error).exp(),
            high: (mean + error).exp(),
            pairs: u32::try_from(ratios.len()).unwrap_or(u32::MAX),
        })
    }

    /// Whether the candidate is shown to be better by the margin that makes a change worth it.
    pub fn proves(&self) -> bool {
        self.low > 1.0 + self.signal.margin()
    }

    /// Whether a gain that makes a change worth it is ruled out.
    pub fn refutes(&self) -> bool {
        self.high < 1.0 + self.signal.margin()
    }

    /// Whether a loss of more than the margin is ruled out.
    pub(crate) fn is_not_lower(&self) -> bool {
        self.low > 1.0 - self.signal.margin()
    }

    /// Whether the candidate looks better by half of its signal's margin, shown or not.
    pub(crate) fn looks_better(&self) -> bool {
        self.ratio > 1.0 + self.signal.margin() / 2.0
    }

    /// Whether the candidate is shown to be worse.
    pub(crate) fn is_lower(&self) -> bool {
        self.high < 1.0
    }

    /// Whether the candidate, which was proven before, is shown to be better still: by half of that margin, so that what is
    /// near it does not come and go.
    pub fn confirms(&self) -> bool {
        self.low > 1.0 + self.signal.margin() / 2.0
    }
}

/// Half the width of the confidence sequence of a mean of `n`, in standard deviations.
fn half_width(n: f64) -> f64 {
    let mixed = n + TIGHTEST;
    (mixed * ((mixed / TIGHTEST).ln() - 2.0 * ERROR.ln())).sqrt() / n
}

/// The median; 0 of nothing.
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
        Evidence::of(Signal::Moved, ratios, spread).unwrap()
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

    /// Looking after every pair must not raise the error: the promise of a confidence sequence.
    #[test]
    fn looking_after_every_pair_is_wrong_in_a_fiftieth_of_trials_at_most() {
        let (mut state, trials) = (0x2545_F491_4F6C_DD1D_u64, 2000);
        let mut normal = || {
            // The sum of twelve uniform numbers, by a fixed sequence (xorshift64).
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
