//! What tracing is allowed to cost, and what happens when it costs more.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attach::RunTime;

/// How much of the CPU time in use tracing is allowed to cost, as shares (0..=1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Above this, threads and vCPUs are traced in windows only, rarely enough to cost two fifths of it. If that is not
    /// enough, fewer kinds of events are counted.
    pub sample_above: f64,
    /// Above this, even in windows, tracing ends.
    pub detach_above: f64,
}

impl Default for Budget {
    /// 2 % and 5 %.
    fn default() -> Self {
        Self { sample_above: 0.02, detach_above: 0.05 }
    }
}

/// What tracing cost when last measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Cost of the BPF programs, with their entry and exit overhead, and of opening and closing windows: as a share
    /// (0..=1) of the time that all vCPUs were busy, or of one vCPU's time if they were busy for less.
    pub share: f64,
    /// How often programs ran, per second, while attached.
    pub runs_per_second: f64,
    /// The part of `share` for opening and closing windows: attaching, detaching and measuring.
    pub windows: f64,
    /// Each program's part of `share`, costliest first.
    pub programs: Vec<(String, f64)>,
}

/// Windows aim at this part of `sample_above`: the measurement is a little old, and the budget need not be used up.
const TARGET_SHARE: f64 = 0.4;
/// Length of a window: opening one costs as much as tracing all of a busy program for tens of milliseconds.
pub(crate) const WINDOW: Duration = Duration::from_millis(50);
/// Longest time that a window can stand for, in windows: 5 s.
pub(crate) const MAX_ONE_IN: u32 = 100;

/// One program's cost while attached, as a share of the time in use.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// Whether it is attached only inside windows, if there are windows.
    pub(crate) windowed: bool,
    pub(crate) share: f64,
    pub(crate) runs: u64,
}

/// A measurement while everything was attached.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    /// Length of the measurement.
    pub(crate) elapsed: Duration,
    /// Mean number of vCPUs in use, at least one.
    pub(crate) in_use: f64,
    pub(crate) programs: Vec<Part>,
    /// Cost of opening and closing a window, on its own thread and on other vCPUs, as a share of the time in use while
    /// it is open; zero if not measured yet.
    pub(crate) switching: f64,
}

/// Corrections to the kernel's statistics, per run of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PerRun {
    /// Run time that the kernel reports for an empty program: the cost of reading the clock.
    pub(crate) clock: Duration,
    /// Entry and exit overhead of a program, which the kernel's statistics leave out.
    pub(crate) entry: Duration,
}

impl PerRun {
    /// Real cost of a program for which the kernel reports `ran`.
    pub(crate) fn correct(self, ran: RunTime) -> Duration {
        let runs = u32::try_from(ran.runs).unwrap_or(u32::MAX);
        ran.time.saturating_sub(self.clock * runs) + self.entry * runs
    }
}

/// What patching the kernel's code costs each vCPU in use, as a multiple of the patching thread's CPU time: it is
/// interrupted three times, waits for the others, and reschedules. No statistics show it.
const PATCHING_FACTOR: f64 = 3.0;

/// CPU time for opening and closing a window, in seconds: `own` of the thread that does it, plus what it costs the
/// `in_use` vCPUs.
pub(crate) fn switching(own: Duration, in_use: f64) -> f64 {
    own.as_secs_f64() * (1.0 + PATCHING_FACTOR * in_use)
}

/// What to do about the cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Trace all the time.
    Always,
    /// Trace in windows that stand for this many times their length.
    Windows(u32),
    /// Detach the costliest optional program, and make windows as rare as possible.
    Shed,
    /// End tracing.
    Detach,
}

impl Measured {
    /// The same with a known cost of opening and closing a window, of which `own` is the thread's CPU time.
    pub(crate) fn switched(self, own: Duration) -> Self {
        let switching = switching(own, self.in_use) / (self.in_use * WINDOW.as_secs_f64());
        Self { switching, ..self }
    }

    fn sum(&self, windowed: bool) -> f64 {
        self.programs.iter().filter(|p| p.windowed == windowed).map(|p| p.share).sum()
    }

    /// The cost if a window stands for `one_in` times its length; 1: no windows.
    pub(crate) fn cost(&self, one_in: u32) -> Cost {
        let part = |windowed: bool| if windowed { 1.0 / f64::from(one_in) } else { 1.0 };
        let mut programs: Vec<(String, f64)> =
            self.programs.iter().map(|p| (p.name.to_owned(), p.share * part(p.windowed))).collect();
        programs.sort_by(|a, b| b.1.total_cmp(&a.1));
        let windows = if one_in > 1 { self.switching / f64::from(one_in) } else { 0.0 };
        let runs: u64 = self.programs.iter().map(|p| p.runs).sum();
        Cost {
            share: programs.iter().map(|(_, share)| share).sum::<f64>() + windows,
            runs_per_second: runs as f64 / self.elapsed.as_secs_f64().max(1e-9),
            windows,
            programs,
        }
    }
}

impl Budget {
    /// What to do after this measurement, made with windows of `one_in`.
    pub(crate) fn judge(&self, measured: &Measured, one_in: u32) -> Verdict {
        let (all, steady) = (measured.cost(1).share, measured.sum(false));
        // Hysteresis, against flapping.
        let enough = if one_in > 1 { self.sample_above / 1.5 } else { self.sample_above };
        if all <= enough {
            return Verdict::Always;
        }
        let aim = self.sample_above * TARGET_SHARE;
        let (windowed, left) = (measured.sum(true) + measured.switching, aim - steady);
        // At least 2: with 1 there are no windows.
        if let Some(one_in) = (2..=MAX_ONE_IN).find(|n| windowed / f64::from(*n) <= left) {
            return Verdict::Windows(one_in);
        }
        let least = measured.cost(MAX_ONE_IN).share;
        match least {
            // Windows come before detaching anything.
            _ if one_in == 1 || least <= self.sample_above => Verdict::Windows(MAX_ONE_IN),
            _ if least <= self.detach_above => Verdict::Shed,
            _ => Verdict::Detach,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(windowed: f64, steady: f64, switching: f64) -> Measured {
        let share = |name, windowed, share| Part { name, windowed, share, runs: 1000 };
        let programs = vec![share("steady", false, steady), share("windowed", true, windowed)];
        Measured { elapsed: Duration::from_secs(1), in_use: 2.0, programs, switching }
    }

    #[test]
    fn follows_all_the_time_while_that_is_cheap_and_goes_back_late() {
        let budget = Budget::default();
        assert_eq!(budget.judge(&measured(0.010, 0.005, 0.1), 1), Verdict::Always);
        assert_eq!(budget.judge(&measured(0.010, 0.005, 0.1), 8), Verdict::Windows(37));
        assert_eq!(budget.judge(&measured(0.010, 0.002, 0.1), 8), Verdict::Always);
    }

    #[test]
    fn windows_are_as_rare_as_needed_with_their_own_cost_in() {
        let budget = Budget::default();
        let (plain, costly) = (measured(0.08, 0.0, 0.0), measured(0.08, 0.002, 0.12));
        assert_eq!(budget.judge(&plain, 1), Verdict::Windows(10));
        let Verdict::Windows(one_in) = budget.judge(&costly, 8) else { panic!() };
        assert_eq!(one_in, 34);
        let cost = costly.cost(one_in);
        assert!(cost.share <= 0.008 && cost.share > 0.0077, "{}", cost.share);
        assert!((cost.windows - 0.12 / 34.0).abs() < 1e-9);
        assert_eq!(cost.programs[0].0, "windowed");
        assert!((cost.programs[1].1 - 0.002).abs() < 1e-9, "what is steady costs what it costs");
    }

    #[test]
    fn gives_up_kinds_of_events_only_where_windows_do_not_help() {
        let budget = Budget::default();
        assert_eq!(budget.judge(&measured(0.08, 0.03, 0.0), 1), Verdict::Windows(MAX_ONE_IN));
        assert_eq!(budget.judge(&measured(0.08, 0.03, 0.1), 8), Verdict::Shed);
        assert_eq!(budget.judge(&measured(0.08, 0.012, 0.1), 8), Verdict::Windows(MAX_ONE_IN));
    }

    #[test]
    fn ends_only_when_windows_were_tried() {
        let budget = Budget::default();
        assert_eq!(budget.judge(&measured(0.08, 0.06, 0.0), 1), Verdict::Windows(MAX_ONE_IN));
        assert_eq!(budget.judge(&measured(0.08, 0.06, 0.1), MAX_ONE_IN), Verdict::Detach);
    }

    #[test]
    fn patching_is_expensive_where_others_run() {
        let own = Duration::from_millis(4);
        assert!((switching(own, 1.0) - 0.016).abs() < 1e-9);
        assert!((switching(own, 2.0) - 0.028).abs() < 1e-9);
        let known = measured(0.08, 0.0, 0.0).switched(own);
        assert!((known.switching - 0.28).abs() < 1e-9, "28 ms of two vCPUs' 50 ms");
        assert_eq!(Budget::default().judge(&known, 1), Verdict::Windows(45));
    }

    #[test]
    fn the_clock_is_subtracted_and_the_entry_overhead_added() {
        let per_run = PerRun { clock: Duration::from_nanos(50), entry: Duration::from_nanos(30) };
        let ran = RunTime { time: Duration::from_nanos(1500), runs: 10 };
        assert_eq!(per_run.correct(ran), Duration::from_nanos(1300));
        let faster = RunTime { time: Duration::from_nanos(400), runs: 10 };
        assert_eq!(per_run.correct(faster), Duration::from_nanos(300));
    }
}
