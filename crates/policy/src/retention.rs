//! Retention: how long an idle vCPU is worth keeping awake, and when not at all (paper §4.1).

mod veto;

use std::time::Duration;

use crate::consolidation::scale;
use crate::idle_histogram::IdleHistogram;

pub use veto::Veto;
pub(crate) use veto::VetoGate;

/// What halting and polling cost on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetentionCosts {
    /// The cost of a halt that a wake-up ends: the waker's part and the latency, as calibrated.
    pub(crate) wake_cost: Duration,
    /// What one µs of polling costs in µs of waiting. Values below [`Self::MIN_PRICE`] count as that.
    pub(crate) poll_price: f64,
}

impl RetentionCosts {
    /// Keeps the bound finite: polling is never free.
    const MIN_PRICE: f64 = 0.001;

    /// The break-even point: polling for this long costs as much as the wake-up it avoids. Halting after
    /// exactly this long is 2-competitive (ski rental; Karlin et al., SOSP 1991): no idle period costs more
    /// than twice what it would have cost had its length been known.
    pub(crate) fn bound(&self) -> Duration {
        scale(self.wake_cost, 1.0 / self.price())
    }

    fn price(&self) -> f64 {
        self.poll_price.max(Self::MIN_PRICE)
    }
}

/// The limit, at most [`RetentionCosts::bound`], with the least expected cost over the idle periods of all
/// `histograms`; the shortest one in a tie. Zero if idle periods are so long that halting at once is cheapest.
/// The bound itself if no idle period is known, since it needs no knowledge.
pub(crate) fn choose_limit(histograms: &[IdleHistogram], costs: &RetentionCosts) -> Duration {
    let mut merged = IdleHistogram::default();
    for histogram in histograms {
        merged.merge(histogram);
    }
    let bound = costs.bound();
    if merged.is_empty() {
        return bound;
    }
    let cost_ns = |limit| merged.expected_cost_ns(limit, costs.wake_cost, costs.price());
    let (mut best, mut least) = (Duration::ZERO, cost_ns(Duration::ZERO));
    for limit in merged.edges().take_while(|edge| *edge < bound).chain([bound]) {
        let cost = cost_ns(limit);
        if cost < least {
            (best, least) = (limit, cost);
        }
    }
    best
}

/// Turns a sequence of choices into few changes of the limit: it grows at once, shrinks slowly, and ignores
/// changes of less than a quarter. Growing late costs a wake-up in every idle period, shrinking late only some
/// polling, so a symmetric rule loses on a busy load.
#[derive(Debug, Clone, Default)]
pub(crate) struct LimitAdapter {
    /// Since when the choices have been smaller than the limit.
    smaller_since: Option<Duration>,
    halved_at: Option<Duration>,
}

impl LimitAdapter {
    /// How long the choices must be smaller before the limit shrinks.
    const HOLD: Duration = Duration::from_secs(2);
    /// The least time between two halvings of the limit.
    const INTERVAL: Duration = Duration::from_millis(500);
    /// Smaller relative changes of the limit are not worth a write.
    const QUANTUM: f64 = 0.25;
    /// A limit below this is no retention: one turn of the kernel's poll loop takes about as long.
    const FLOOR: Duration = Duration::from_micros(1);

    /// The limit from `now` on (on any monotonic clock), where `limit` is in force and `choice` would be best.
    /// `limit` itself if nothing is to be written; zero ends retention.
    pub(crate) fn step(&mut self, now: Duration, limit: Duration, choice: Duration) -> Duration {
        if choice >= limit {
            self.smaller_since = None;
            let worth = choice >= Self::FLOOR && choice >= scale(limit, 1.0 + Self::QUANTUM);
            return if worth { choice } else { limit };
        }
        let since = *self.smaller_since.get_or_insert(now);
        let held = now.saturating_sub(since) < Self::HOLD;
        let just_halved = self.halved_at.is_some_and(|at| now.saturating_sub(at) < Self::INTERVAL);
        let smaller = choice.max(limit / 2);
        if held || just_halved || smaller > scale(limit, 1.0 - Self::QUANTUM) {
            return limit;
        }
        if smaller < Self::FLOOR {
            *self = Self::default();
            return Duration::ZERO;
        }
        self.halved_at = Some(now);
        smaller
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: Duration = Duration::from_micros(1);
    const MS: Duration = Duration::from_millis(1);
    const COSTS: RetentionCosts = at_price(0.25);

    const fn at_price(poll_price: f64) -> RetentionCosts {
        RetentionCosts { wake_cost: Duration::from_micros(30), poll_price }
    }

    fn histogram(samples: &[(u32, Duration)]) -> IdleHistogram {
        let mut h = IdleHistogram::default();
        for &(count, mean) in samples {
            h.add(f64::from(count), mean);
        }
        h
    }

    #[test]
    fn the_bound_is_where_polling_has_cost_a_wake_up() {
        assert_eq!(COSTS.bound(), US * 120);
        assert_eq!(at_price(1.0).bound(), US * 30);
        assert_eq!(at_price(0.0).bound(), MS * 30);
    }

    #[test]
    fn long_idle_periods_are_not_retained() {
        assert_eq!(choose_limit(&[histogram(&[(1000, MS * 5)])], &COSTS), Duration::ZERO);
    }

    #[test]
    fn short_idle_periods_are_retained_just_long_enough() {
        let limit = choose_limit(&[histogram(&[(1000, US * 20), (50, MS * 5)])], &COSTS);
        assert!((US * 20..=US * 25).contains(&limit), "{limit:?}");
    }

    #[test]
    fn a_few_short_periods_do_not_pay_for_many_long_ones() {
        assert_eq!(choose_limit(&[histogram(&[(10, US * 60), (1000, MS * 5)])], &COSTS), Duration::ZERO);
    }

    #[test]
    fn costly_polling_retains_less() {
        let h = [histogram(&[(100, US * 60)])];
        assert!(choose_limit(&h, &COSTS) >= US * 60);
        assert_eq!(choose_limit(&h, &at_price(1.0)), Duration::ZERO);
    }

    #[test]
    fn without_knowledge_the_bound_is_chosen() {
        assert_eq!(choose_limit(&[], &COSTS), COSTS.bound());
    }

    #[test]
    fn the_histograms_of_all_vcpus_decide_together() {
        let (short, long) = (histogram(&[(10, US * 60)]), histogram(&[(1000, MS * 5)]));
        assert!(choose_limit(std::slice::from_ref(&short), &COSTS) >= US * 60);
        assert_eq!(choose_limit(&[short, long], &COSTS), Duration::ZERO);
    }

    /// The limits after each of `choices`, in µs, 100 ms apart, starting from `start`.
    fn limits(start: u32, choices: impl IntoIterator<Item = u32>) -> Vec<u128> {
        let (mut a, mut limit, mut now) = (LimitAdapter::default(), US * start, Duration::ZERO);
        let mut step = |choice| {
            limit = a.step(now, limit, US * choice);
            now += MS * 100;
            limit.as_micros()
        };
        choices.into_iter().map(&mut step).collect()
    }

    #[test]
    fn the_limit_grows_at_once() {
        assert_eq!(limits(0, [20, 100]), [20, 100]);
    }

    #[test]
    fn a_change_of_less_than_a_quarter_is_not_written() {
        assert_eq!(limits(100, [124, 125]), [100, 125]);
        assert!(limits(100, [76; 100]).iter().all(|us| *us == 100));
    }

    #[test]
    fn the_limit_halves_after_the_hold_time_once_per_interval_until_zero() {
        let limits = limits(16, [0; 60]);
        let changes: Vec<_> =
            (1..60).filter(|&i| limits[i] != limits[i - 1]).map(|i| (i, limits[i])).collect();
        assert_eq!(changes, [(20, 8), (25, 4), (30, 2), (35, 1), (40, 0)]);
    }

    #[test]
    fn the_limit_shrinks_no_further_than_the_choice() {
        assert_eq!(limits(100, [60; 60]).last(), Some(&60));
    }

    #[test]
    fn one_large_choice_restarts_the_hold_time() {
        let choices = [10; 20].into_iter().chain([100]).chain([10; 21]);
        let limits = limits(100, choices);
        assert!(limits[..41].iter().all(|us| *us == 100), "{limits:?}");
        assert_eq!(limits[41], 50);
    }

    proptest! {
        #[test]
        fn the_bound_costs_at_most_twice_the_offline_optimum(
            samples in proptest::collection::vec((1u32..1000, 1u64..10_000_000), 1..50),
            wake_us in 1u64..200,
            poll_price in 0.05f64..2.0,
        ) {
            let costs = RetentionCosts { wake_cost: Duration::from_micros(wake_us), poll_price };
            let (mut h, mut optimum, mut count) = (IdleHistogram::default(), 0.0, 0.0);
            let mut lengths = std::collections::BTreeSet::new();
            for (n, ns) in samples {
                // One sample per bin makes the histogram, and so the comparison, exact.
                let mut one = IdleHistogram::default();
                one.add(1.0, Duration::from_nanos(ns));
                if !lengths.insert(one.edges().next()) {
                    continue;
                }
                h.add(f64::from(n), Duration::from_nanos(ns));
                optimum += f64::from(n) * (ns as f64 * poll_price).min(wake_us as f64 * 1000.0);
                count += f64::from(n);
            }
            let cost = h.expected_cost_ns(costs.bound(), costs.wake_cost, poll_price);
            // The bound is a whole number of nanoseconds.
            prop_assert!(cost <= 2.0 * optimum / count + 2.0, "{} > 2 * {}", cost, optimum / count);
        }

        #[test]
        fn the_choice_is_no_more_expensive_than_halting_at_once_or_the_bound(
            samples in proptest::collection::vec((1u32..1000, 1u64..10_000_000), 1..50),
            wake_us in 1u64..200,
            poll_price in 0.05f64..2.0,
        ) {
            let costs = RetentionCosts { wake_cost: Duration::from_micros(wake_us), poll_price };
            let samples: Vec<_> = samples.into_iter().map(|(n, ns)| (n, Duration::from_nanos(ns))).collect();
            let h = histogram(&samples);
            let cost = |limit| h.expected_cost_ns(limit, costs.wake_cost, poll_price);
            let choice = choose_limit(std::slice::from_ref(&h), &costs);
            prop_assert!(choice <= costs.bound());
            prop_assert!(cost(choice) <= cost(Duration::ZERO) && cost(choice) <= cost(costs.bound()));
        }

        #[test]
        fn the_limit_stays_within_the_choices_and_moves_in_quarters(
            choices in proptest::collection::vec((0u64..1000, 1u64..1000), 1..100),
        ) {
            let mut a = LimitAdapter::default();
            let [mut limit, mut now, mut largest] = [Duration::ZERO; 3];
            for (us, ms) in choices {
                let choice = Duration::from_micros(us);
                now += Duration::from_millis(ms);
                largest = largest.max(choice);
                let next = a.step(now, limit, choice);
                prop_assert!(next <= largest && (next >= limit / 2 || next.is_zero()));
                prop_assert!(next == limit || next >= scale(limit, 1.25) || next <= scale(limit, 0.75));
                limit = next;
            }
        }
    }
}
