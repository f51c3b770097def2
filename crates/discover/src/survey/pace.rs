//! How often to survey: what it costs decides.

use std::time::Duration;

/// CPU time that may be spent, which time earns.
#[derive(Debug)]
pub(super) struct Pace {
    /// Negative after an expensive survey.
    credit_s: f64,
    /// When it was last counted.
    at: Duration,
    cost: Duration,
}

impl Pace {
    /// The most that surveys take of the time.
    const SHARE: f64 = 1.0 / 200.0;
    /// What a quiet time, and the start, can save up: enough for the surveys of the second after a load begins, on
    /// all but huge machines.
    const MOST_CREDIT_S: f64 = 0.1;
    /// Closer to each other, two surveys say little: rates over less time are noise.
    const SHORTEST: Duration = Duration::from_millis(80);

    pub(super) fn new() -> Self {
        Self { credit_s: Self::MOST_CREDIT_S, at: Duration::ZERO, cost: Duration::ZERO }
    }

    /// A survey at `now` took this CPU time.
    pub(super) fn spend(&mut self, now: Duration, cost: Duration) {
        let earned = now.saturating_sub(self.at).as_secs_f64() * Self::SHARE;
        self.credit_s = (self.credit_s + earned).min(Self::MOST_CREDIT_S) - cost.as_secs_f64();
        (self.at, self.cost) = (now, cost);
    }

    /// CPU time of the last survey.
    pub(super) fn cost(&self) -> Duration {
        self.cost
    }

    /// From the last survey to the next.
    pub(super) fn wait(&self) -> Duration {
        Duration::from_secs_f64((-self.credit_s / Self::SHARE).max(0.0)).max(Self::SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn after_a_quiet_time_two_surveys_can_follow_each_other() {
        let mut pace = Pace::new();
        pace.spend(Duration::from_secs(60), Duration::from_millis(50));
        assert_eq!(pace.wait(), Pace::SHORTEST);
        pace.spend(Duration::from_millis(60_100), Duration::from_millis(50));
        assert_eq!(pace.wait(), Pace::SHORTEST);
        pace.spend(Duration::from_millis(60_200), Duration::from_millis(4));
        assert!((0.55..0.65).contains(&pace.wait().as_secs_f64()), "3 ms too much: {:?}", pace.wait());
    }

    proptest! {
        #[test]
        fn all_surveys_take_a_two_hundredth_of_the_time(
            costs_us in proptest::collection::vec(1u64..100_000, 1..200),
            pauses_ms in proptest::collection::vec(0u64..5000, 200),
        ) {
            let (mut pace, mut now, mut all) = (Pace::new(), Duration::ZERO, Duration::ZERO);
            for (cost, pause) in costs_us.iter().zip(&pauses_ms) {
                let cost = Duration::from_micros(*cost);
                pace.spend(now, cost);
                all += cost;
                now += pace.wait() + Duration::from_millis(*pause);
            }
            let allowed = now.as_secs_f64() * Pace::SHARE + Pace::MOST_CREDIT_S + 1e-9;
            prop_assert!(all.as_secs_f64() <= allowed, "{all:?} in {now:?}");
        }
    }
}
