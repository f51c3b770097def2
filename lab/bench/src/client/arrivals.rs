//! When requests are due: a Poisson process.

use crate::stats::Rng;

/// Arrival times with exponential gaps, in ns since the start, ascending.
#[derive(Debug, Clone)]
pub(super) struct Arrivals {
    random: Rng,
    gap_ns: f64,
    end_ns: u64,
    next_ns: f64,
}

impl Arrivals {
    /// `rate` arrivals per second on average until `end_ns`; none if the rate is not positive.
    pub(super) fn new(random: Rng, rate: f64, end_ns: u64) -> Self {
        let gap_ns = if rate > 0.0 { 1e9 / rate } else { f64::INFINITY };
        let mut arrivals = Self { random, gap_ns, end_ns, next_ns: 0.0 };
        arrivals.advance();
        arrivals
    }

    /// The next arrival; `None` after the last one.
    pub(super) fn next_due(&self) -> Option<u64> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let next = self.next_ns as u64;
        (next < self.end_ns).then_some(next)
    }

    /// Takes the next arrival if its time has come.
    pub(super) fn take_due(&mut self, now: u64) -> Option<u64> {
        let due = self.next_due().filter(|due| *due <= now)?;
        self.advance();
        Some(due)
    }

    /// Draws the next gap by inverting the exponential distribution.
    fn advance(&mut self) {
        self.next_ns -= self.random.unit().ln() * self.gap_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn all(seed: u64, rate: f64, seconds: u64) -> Vec<u64> {
        let mut arrivals = Arrivals::new(Rng::new(seed), rate, seconds * SECOND);
        std::iter::from_fn(|| arrivals.take_due(u64::MAX)).collect()
    }

    #[test]
    fn the_rate_is_as_asked_and_gaps_are_exponential() {
        let times = all(1, 5_000.0, 20);
        assert!((times.len() as f64 / 100_000.0 - 1.0).abs() < 0.01, "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "an exponential's deviation is its mean");
        let beyond = gaps.iter().filter(|gap| **gap > 3.0 * mean).count() as f64 / gaps.len() as f64;
        assert!((beyond - (-3.0_f64).exp()).abs() < 0.003, "{beyond}");
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        assert_eq!(all(7, 1_000.0, 1), all(7, 1_000.0, 1));
        assert_ne!(all(7, 1_000.0, 1), all(8, 1_000.0, 1));
    }

    #[test]
    fn nothing_is_due_before_its_time_or_after_the_end() {
        let mut arrivals = Arrivals::new(Rng::new(1), 1_000.0, SECOND);
        let first = arrivals.next_due().unwrap();
        assert_eq!(arrivals.take_due(first - 1), None);
        assert_eq!(arrivals.take_due(first), Some(first));
        assert!(all(1, 1_000.0, 1).iter().all(|due| *due < SECOND));
        assert!(all(1, 0.0, 1).is_empty());
    }
}
