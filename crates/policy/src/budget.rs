//! What trials may cost: exploration is paid from a budget, as in conservative bandits (Wu, Shariff, Lattimore
//! and Szepesvári 2016).
//!
//! Running time earns credit, and a candidate that turns out to be worse spends it; without credit nothing that
//! was refuted is tried again. So the loss against the untouched system stays below [`LOSS_SHARE`] of the time
//! in the long run, and below [`LARGEST_CREDIT`] on top of that over any shorter one.

use std::time::Duration;

/// The share of the workload's time that trials may cost: half of what is promised, since proofs and sampling cost something, too.
const LOSS_SHARE: f64 = 0.01;
/// The initial credit, and the most that can be saved.
const LARGEST_CREDIT: Duration = Duration::from_millis(100);
/// A trial of three pairs or more ends when it has cost this: an eighth of [`LARGEST_CREDIT`], so that one misled by
/// noise can be repeated.
pub(crate) const LARGEST_TRIAL_LOSS: Duration = Duration::from_micros(12_500);

/// The credit for trials, in seconds of lost progress.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    credit: f64,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { credit: LARGEST_CREDIT.as_secs_f64() }
    }

    pub(crate) fn earn(&mut self, time: Duration) {
        self.credit = (self.credit + LOSS_SHARE * time.as_secs_f64()).min(LARGEST_CREDIT.as_secs_f64());
    }

    /// Books the progress `lost` in a trial that ended at `now`; returns when there is credit again.
    pub(crate) fn spend(&mut self, lost: Duration, now: Duration) -> Duration {
        self.credit -= lost.as_secs_f64();
        now + Duration::from_secs_f64((-self.credit / LOSS_SHARE).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn losses_beyond_the_credit_are_waited_for() {
        let mut budget = Budget::new();
        assert_eq!(budget.spend(60 * MS, 500 * MS), 500 * MS);
        let until = budget.spend(60 * MS, 500 * MS);
        assert!((until.as_secs_f64() - 2.5).abs() < 1e-6, "20 ms at 1 %: {until:?}");
        budget.earn(until);
        assert_eq!(budget.spend(Duration::ZERO, until), until);
    }

    #[test]
    fn credit_is_not_saved_for_ever() {
        let mut budget = Budget::new();
        budget.earn(Duration::from_secs(3600));
        assert!(budget.spend(150 * MS, Duration::ZERO) > 2000 * MS);
    }
}
