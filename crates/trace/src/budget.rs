//! What tracing may cost, and what it does when it costs more.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How much of the CPU time in use tracing may cost, as shares (0..=1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Above this only a sample of the events is followed; where that does not help, fewer kinds of them.
    pub sample_above: f64,
    /// Above this, although it samples, tracing ends.
    pub detach_above: f64,
}

impl Default for Budget {
    /// 2 % and 5 %.
    fn default() -> Self {
        Self { sample_above: 0.02, detach_above: 0.05 }
    }
}

/// What tracing cost when it was last measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The BPF programs' run time, as a share (0..=1) of the time that all vCPUs were busy, or of one vCPU's time where
    /// they were busy for less than that. The kernel's way into and out of a program is not in it, nor what looking at
    /// the clock adds to each run while the kernel measures.
    pub share: f64,
    /// How often programs ran, per second.
    pub runs_per_second: f64,
    /// Each program and its part of the share, dearest first.
    pub programs: Vec<(String, f64)>,
}

/// One event in 64 is the coarsest sample: what is left then are the programs' beginnings, which no sampling avoids.
pub(crate) const MAX_SHIFT: u32 = 6;

/// What to do about a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Follow one event in 1 << n from now on.
    Sample(u32),
    /// Do without the dearest program that others do not need.
    Shed,
    /// End.
    Detach,
}

impl Budget {
    /// What to do when tracing one event in `1 << shift` costs `share`.
    pub(crate) fn judge(&self, share: f64, shift: u32) -> Verdict {
        if share > self.detach_above {
            return if shift >= MAX_SHIFT { Verdict::Detach } else { Verdict::Sample(MAX_SHIFT) };
        }
        if share > self.sample_above {
            if shift >= MAX_SHIFT {
                return Verdict::Shed;
            }
            // Halving the sample saves less than half, since a program's beginning costs too: hence two for one.
            let halvings = (1..=MAX_SHIFT).find(|n| share / f64::from(1 << n) <= self.sample_above);
            return Verdict::Sample((shift + 2 * halvings.unwrap_or(MAX_SHIFT)).min(MAX_SHIFT));
        }
        // A step back doubles the cost at most; not before that would surely stay within the budget.
        Verdict::Sample(if share < self.sample_above / 3.0 { shift.saturating_sub(1) } else { shift })
    }
}

/// How long programs ran, and how often, each by its name: the kernel's counters at one moment.
pub(crate) type RunTimes = Vec<(&'static str, Duration, u64)>;

/// The cost between two readings `elapsed` apart, in which all vCPUs together were `busy` so long. Each run counts for
/// `empty` less: so long does the kernel take a program to run that does nothing.
pub(crate) fn cost(
    before: &RunTimes,
    after: &RunTimes,
    elapsed: Duration,
    busy: Duration,
    empty: Duration,
) -> Cost {
    let available = busy.max(elapsed).as_secs_f64();
    let old = |name: &str| {
        before.iter().find(|(n, ..)| *n == name).map_or((Duration::ZERO, 0), |(_, t, n)| (*t, *n))
    };
    let mut runs = 0;
    let mut programs: Vec<(String, f64)> = after
        .iter()
        .map(|(name, time, count)| {
            let (old_time, old_count) = old(name);
            let ran = count.saturating_sub(old_count);
            runs += ran;
            let measuring = empty.as_secs_f64() * ran as f64;
            let own = (time.saturating_sub(old_time).as_secs_f64() - measuring).max(0.0);
            ((*name).to_owned(), own / available)
        })
        .collect();
    programs.sort_by(|a, b| b.1.total_cmp(&a.1));
    Cost {
        share: programs.iter().map(|(_, share)| share).sum(),
        runs_per_second: runs as f64 / elapsed.as_secs_f64(),
        programs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_as_much_as_is_needed_and_goes_back_slowly() {
        let budget = Budget::default();
        assert_eq!(budget.judge(0.015, 0), Verdict::Sample(0));
        assert_eq!(budget.judge(0.03, 0), Verdict::Sample(2));
        assert_eq!(budget.judge(0.045, 0), Verdict::Sample(4));
        assert_eq!(budget.judge(0.015, 2), Verdict::Sample(2));
        assert_eq!(budget.judge(0.004, 2), Verdict::Sample(1));
        assert_eq!(budget.judge(0.004, 0), Verdict::Sample(0));
    }

    #[test]
    fn ends_only_when_sampling_did_not_help() {
        let budget = Budget::default();
        assert_eq!(budget.judge(0.5, 0), Verdict::Sample(MAX_SHIFT));
        assert_eq!(budget.judge(0.06, MAX_SHIFT), Verdict::Detach);
        assert_eq!(budget.judge(0.04, MAX_SHIFT), Verdict::Shed);
        assert_eq!(budget.judge(0.015, MAX_SHIFT), Verdict::Sample(MAX_SHIFT));
    }

    #[test]
    fn is_measured_against_the_time_in_use_but_one_vcpu_at_least() {
        let ms = Duration::from_millis;
        let before = vec![("a", ms(10), 5)];
        let after = vec![("a", ms(20), 15), ("b", ms(30), 10)];
        let idle = cost(&before, &after, ms(1000), ms(10), Duration::ZERO);
        assert!((idle.share - 0.04).abs() < 1e-9 && (idle.runs_per_second - 20.0).abs() < 1e-9);
        assert_eq!(idle.programs[0].0, "b");
        let busy = cost(&before, &after, ms(1000), ms(4000), Duration::ZERO);
        assert!((busy.share - 0.01).abs() < 1e-9);
        // A millisecond of each of the 20 runs was the clock's.
        let corrected = cost(&before, &after, ms(1000), ms(10), ms(1));
        assert!((corrected.share - 0.02).abs() < 1e-9, "{}", corrected.share);
    }
}
