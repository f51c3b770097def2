//! Decides when a yield thread yields again and when it sleeps: the arithmetic of the paper's §6, without a
//! clock.

use std::time::Duration;

/// The first sleep after a time-out: about the time to halt a vCPU and wake it again.
pub(super) const FIRST_SLEEP: Duration = Duration::from_micros(50);

/// The longest sleep. Polling up to the limit once in this time costs little on a vCPU that stays idle.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_millis(8);

/// A yield that took more than this many times the fastest one did not return immediately: it included two
/// context switches and another thread's work, while a yield to nothing always takes the same path.
const IMMEDIATE_FACTOR: u32 = 3;

/// The meaning of a yield's duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing else was runnable.
    Immediate,
    /// Another thread ran: an idle period starts.
    Switched,
    /// Nothing else was runnable, and the limit is reached: sleep this long.
    Sleep(Duration),
}

/// The state of one yield thread between two yields.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    fastest: Duration,
    idle: Duration,
    next_sleep: Duration,
}

impl Pace {
    /// `fastest` is the shortest of a few yields. Faster ones replace it later, since on a busy vCPU all of the
    /// first can be long.
    pub(super) fn new(fastest: Duration) -> Self {
        Self { fastest, idle: Duration::ZERO, next_sleep: FIRST_SLEEP }
    }

    /// Starts a new idle period.
    pub(super) fn reset(&mut self) {
        self.idle = Duration::ZERO;
        self.next_sleep = FIRST_SLEEP;
    }

    /// Judges a yield that took `took`; `limit` is the time-out of an idle period.
    pub(super) fn after(&mut self, took: Duration, limit: Duration) -> Step {
        self.fastest = self.fastest.min(took);
        if took > self.fastest * IMMEDIATE_FACTOR {
            self.reset();
            return Step::Switched;
        }
        self.idle += took;
        if self.idle < limit {
            return Step::Immediate;
        }
        self.idle = Duration::ZERO;
        let sleep = self.next_sleep;
        self.next_sleep = (sleep * 2).min(LONGEST_SLEEP);
        Step::Sleep(sleep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_nanos(300);
    const LIMIT: Duration = Duration::from_micros(3);

    fn until_sleep(pace: &mut Pace) -> (u32, Duration) {
        for yields in 1..1000 {
            match pace.after(QUICK, LIMIT) {
                Step::Immediate => {}
                Step::Sleep(sleep) => return (yields, sleep),
                Step::Switched => panic!("a quick yield is no switch"),
            }
        }
        panic!("the limit has no effect");
    }

    #[test]
    fn the_limit_is_the_sum_of_consecutive_immediate_yields() {
        let mut pace = Pace::new(QUICK);
        for _ in 0..9 {
            assert_eq!(pace.after(QUICK, LIMIT), Step::Immediate);
        }
        assert_eq!(pace.after(QUICK * 10, LIMIT), Step::Switched);
        assert_eq!(until_sleep(&mut pace), (10, FIRST_SLEEP), "a switch starts the sum again");
    }

    #[test]
    fn sleeps_double_up_to_the_longest_and_a_switch_starts_again() {
        let mut pace = Pace::new(QUICK);
        let mut sleeps: Vec<Duration> = (0..10).map(|_| until_sleep(&mut pace).1).collect();
        assert_eq!(sleeps[..3], [FIRST_SLEEP, FIRST_SLEEP * 2, FIRST_SLEEP * 4]);
        assert_eq!(sleeps.pop(), Some(LONGEST_SLEEP));
        assert_eq!(pace.after(Duration::from_micros(40), LIMIT), Step::Switched);
        assert_eq!(until_sleep(&mut pace).1, FIRST_SLEEP);
    }

    #[test]
    fn a_start_on_a_busy_vcpu_is_corrected_by_the_first_quick_yield() {
        let mut pace = Pace::new(Duration::from_millis(4));
        assert_eq!(pace.after(Duration::from_millis(5), Duration::from_secs(1)), Step::Immediate);
        pace.after(QUICK, LIMIT);
        assert_eq!(pace.after(Duration::from_micros(5), LIMIT), Step::Switched);
    }
}
