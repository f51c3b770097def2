//! Whether a signal agrees with what the program reports, in sign and size.

use serde::{Deserialize, Serialize};

use crate::stats::median;

/// Smaller differences of a program's own rate count as none: a setting that is neutral to within this must
/// not be retained (docs/objective.md).
const NEUTRAL_CHANGE: f64 = 0.02;

/// Ratio of the candidate's rate to the baseline's, over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of the rounds' ratios.
    pub median: f64,
    /// Lowest ratio.
    pub low: f64,
    /// Highest ratio.
    pub high: f64,
}

/// On which side of 1 a ratio lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The candidate does less.
    Lower,
    /// No difference.
    Same,
    /// The candidate does more.
    Higher,
}

/// The actual change of a program's rate, as reported by itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Ratio of the rates.
    pub ratio: Ratio,
    /// What the ratio means.
    pub side: Side,
}

/// How a signal compares with that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It shows the actual side of 1, beyond its margin; or no difference, if none exceeds the margin.
    Right,
    /// It shows the other side, or a difference where there is none.
    Wrong,
    /// It shows no difference, although there is one above its margin.
    Missed,
    /// It shows a difference that the program has in a single round but not on the whole.
    Unclear,
    /// Invalid, or too few events.
    Silent,
}

impl Ratio {
    /// From the logarithms of the rounds' ratios; `None` if there are none.
    pub(super) fn of(logarithms: &[f64]) -> Option<Self> {
        let extreme = |choose: fn(f64, f64) -> f64| logarithms.iter().copied().reduce(choose).map(f64::exp);
        Some(Self { median: median(logarithms)?.exp(), low: extreme(f64::min)?, high: extreme(f64::max)? })
    }
}

impl Truth {
    /// From a program's own rate: there is a difference if the median is further from 1 than any round is
    /// from the median.
    pub(super) fn of(ratio: Ratio) -> Self {
        let middle = ratio.median.ln();
        let spread = f64::max(ratio.high.ln() - middle, middle - ratio.low.ln());
        let side = match middle {
            m if m.abs() <= spread.max(NEUTRAL_CHANGE.ln_1p()) => Side::Same,
            m if m > 0.0 => Side::Higher,
            _ => Side::Lower,
        };
        Self { ratio, side }
    }

    /// For a rate determined by clients: they get what they ask for.
    pub(super) fn none(ratio: Ratio) -> Self {
        Self { ratio, side: Side::Same }
    }

    /// Judges the ratio of a signal with this margin.
    pub(super) fn judge(&self, signal: Ratio, margin: f64) -> Verdict {
        let side = |ratio: f64| match ratio {
            r if r > 1.0 + margin => Side::Higher,
            r if r < 1.0 - margin => Side::Lower,
            _ => Side::Same,
        };
        match (side(signal.median), self.side) {
            (shown, side) if shown == side => Verdict::Right,
            (Side::Same, _) if side(self.ratio.median) == Side::Same => Verdict::Right,
            (Side::Same, _) => Verdict::Missed,
            (Side::Higher, Side::Same) if signal.median <= self.ratio.high => Verdict::Unclear,
            (Side::Lower, Side::Same) if signal.median >= self.ratio.low => Verdict::Unclear,
            _ => Verdict::Wrong,
        }
    }

    /// Error of the size of a signal's ratio: the distance of the logarithms.
    pub(super) fn size_error(&self, signal: Ratio) -> f64 {
        (signal.median.ln() - self.ratio.median.ln()).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(rounds: &[f64]) -> Ratio {
        Ratio::of(&rounds.iter().map(|r| r.ln()).collect::<Vec<_>>()).unwrap()
    }

    fn truth(rounds: &[f64]) -> Truth {
        Truth::of(ratio(rounds))
    }

    #[test]
    fn a_ratio_has_its_rounds_range() {
        let r = ratio(&[2.0, 1.0, 4.0]);
        for (is, expected) in [(r.median, 2.0), (r.low, 1.0), (r.high, 4.0)] {
            assert!((is - expected).abs() < 1e-9, "{r:?}");
        }
        assert_eq!(Ratio::of(&[]), None);
    }

    #[test]
    fn a_difference_is_larger_than_its_own_spread_and_than_two_percent() {
        assert_eq!(truth(&[1.2, 1.1, 1.3]).side, Side::Higher);
        assert_eq!(truth(&[0.5, 0.6, 0.4]).side, Side::Lower);
        assert_eq!(truth(&[1.1, 0.9, 1.3]).side, Side::Same);
        assert_eq!(
            truth(&[1.1, 1.05, 1.3]).side,
            Side::Same,
            "one round is further from the median than that from 1"
        );
        assert_eq!(truth(&[1.019, 1.018, 1.019]).side, Side::Same);
        assert_eq!(truth(&[1.03]).side, Side::Higher);
        assert_eq!(Truth::none(ratio(&[1.1, 1.1])).side, Side::Same);
    }

    #[test]
    fn the_same_side_is_right_and_the_other_is_wrong() {
        let judge = |rounds: &[f64], signal: f64| truth(rounds).judge(ratio(&[signal]), 0.04);
        let higher = [1.5, 1.45, 1.6];
        assert_eq!(judge(&higher, 1.05), Verdict::Right);
        assert_eq!(judge(&higher, 3.0), Verdict::Right);
        assert_eq!(judge(&higher, 1.03), Verdict::Missed);
        assert_eq!(judge(&higher, 0.95), Verdict::Wrong);
        let lower = [0.7, 0.72, 0.69];
        assert_eq!(judge(&lower, 0.9), Verdict::Right);
        assert_eq!(judge(&lower, 1.0), Verdict::Missed);
        assert_eq!(judge(&lower, 1.1), Verdict::Wrong);
    }

    #[test]
    fn a_difference_below_the_margin_need_not_be_seen() {
        let small = truth(&[1.03, 1.03, 1.03]);
        assert_eq!(small.side, Side::Higher);
        assert_eq!(small.judge(ratio(&[1.0]), 0.04), Verdict::Right);
        assert_eq!(small.judge(ratio(&[1.0]), 0.02), Verdict::Missed);
        assert_eq!(small.judge(ratio(&[0.9]), 0.04), Verdict::Wrong);
    }

    #[test]
    fn where_there_is_no_difference_showing_one_is_wrong_unless_a_round_shows_as_much() {
        let none = truth(&[1.0, 0.99, 1.01]);
        assert_eq!(none.judge(ratio(&[1.03]), 0.04), Verdict::Right);
        assert_eq!(none.judge(ratio(&[1.05]), 0.04), Verdict::Wrong);
        assert_eq!(none.judge(ratio(&[0.95]), 0.04), Verdict::Wrong);
        let noisy = truth(&[1.0, 0.8, 1.2]);
        assert_eq!(noisy.judge(ratio(&[1.15]), 0.04), Verdict::Unclear);
        assert_eq!(noisy.judge(ratio(&[0.85]), 0.04), Verdict::Unclear);
        assert_eq!(noisy.judge(ratio(&[1.3]), 0.04), Verdict::Wrong);
        assert_eq!(noisy.judge(ratio(&[0.7]), 0.04), Verdict::Wrong);
    }

    #[test]
    fn the_size_error_is_a_distance_of_logarithms() {
        let error = truth(&[2.0]).size_error(ratio(&[1.0]));
        assert!((error - 2f64.ln()).abs() < 1e-9, "{error}");
        assert!((truth(&[2.0]).size_error(ratio(&[4.0])) - error).abs() < 1e-9);
    }
}
