//! For how long a verdict of the guard counts: when what was proven must be proven again, and what was refuted
//! is tried again, and how strictly it is judged then.

use std::time::Duration;

/// A waiting time that doubles with each repetition of an outcome and starts again when things change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    interval: Duration,
    until: Duration,
    /// What a trial has cost is paid off by then, however the behaviour changes.
    paid: Duration,
}

impl Backoff {
    /// Waits `first` after the first outcome and at most `longest` after many.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, interval: first, until: Duration::ZERO, paid: Duration::ZERO }
    }

    /// The same outcome again at `now`: wait twice as long as last time.
    pub(crate) fn extend(&mut self, now: Duration) {
        self.until = now + self.interval;
        self.interval = (self.interval * 2).min(self.longest);
    }

    /// Undecided but promising at `now`: wait a fifth of what [`Backoff::extend`] would.
    pub(crate) fn extend_briefly(&mut self, now: Duration) {
        self.until = now + self.interval / 5;
        self.interval = (self.interval * 2).min(self.longest);
    }

    /// The behaviour changed: start again with the first interval, waiting until then from `now`.
    pub(crate) fn shorten(&mut self, now: Duration) {
        self.interval = self.first;
        self.until = self.until.min(now + self.first);
    }

    /// Waits until `at` at least, after [`Backoff::shorten`] too.
    pub(crate) fn not_before(&mut self, at: Duration) {
        self.paid = self.paid.max(at);
    }

    /// The same outcome was found elsewhere, where it counts until `other` is over: wait as long, and go on from there, unless
    /// this waits for longer already.
    pub(crate) fn follow(&mut self, other: &Self) {
        if other.until() > self.until() {
            *self = *other;
        }
    }

    /// Ends the waiting time at `until`, whatever was set before.
    pub(crate) fn set_until(&mut self, until: Duration) {
        (self.until, self.paid) = (until, Duration::ZERO);
    }

    /// The share (0..=1) of the usual error that is allowed to the next trial of the same: a quarter after each outcome but a
    /// proof, until the waiting time is at its longest. So many trials together err hardly more often than one.
    pub(crate) fn error_share(&self) -> f64 {
        (self.first.as_secs_f64() / self.interval.as_secs_f64()).powi(2)
    }

    /// Whether the waiting time is over at `now`.
    pub(crate) fn is_over(&self, now: Duration) -> bool {
        now >= self.until()
    }

    /// When the waiting time is over.
    pub(crate) fn until(&self) -> Duration {
        self.until.max(self.paid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn backoff_doubles_and_starts_again() {
        let mut backoff = Backoff::new(MS, 8 * MS);
        assert!(backoff.is_over(Duration::ZERO));
        let mut now = Duration::ZERO;
        let mut share = 1.0;
        for expected in [1, 2, 4, 8, 8] {
            assert!((backoff.error_share() - share).abs() < 1e-9);
            backoff.extend(now);
            share = (share / 4.0).max(1.0 / 64.0);
            assert_eq!(backoff.until(), now + expected * MS);
            now = backoff.until();
        }
        backoff.extend(now);
        backoff.shorten(now);
        assert_eq!(backoff.until(), now + MS);
        let mut follows = Backoff::new(MS, 8 * MS);
        follows.follow(&backoff);
        assert_eq!(follows, backoff);
        follows.extend(now);
        let later = follows;
        follows.follow(&backoff);
        assert_eq!(follows, later);
        backoff.extend(now + MS);
        assert_eq!(backoff.until(), now + 2 * MS);
    }

    #[test]
    fn what_a_trial_cost_is_paid_off_however_things_change() {
        let mut wait = Backoff::new(MS, 8 * MS);
        wait.extend(Duration::ZERO);
        wait.not_before(20 * MS);
        wait.shorten(2 * MS);
        assert_eq!(wait.until(), 20 * MS);
        wait.extend(20 * MS);
        assert_eq!(wait.until(), 21 * MS);
        wait.not_before(40 * MS);
        wait.set_until(25 * MS);
        assert_eq!(wait.until(), 25 * MS);
    }

    #[test]
    fn a_promising_outcome_is_tried_again_sooner_but_not_for_ever() {
        let mut backoff = Backoff::new(5 * MS, 40 * MS);
        for expected in [1, 2, 4, 8, 8] {
            backoff.extend_briefly(Duration::ZERO);
            assert_eq!(backoff.until(), expected * MS);
        }
    }
}
