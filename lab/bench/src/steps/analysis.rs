//! When the new speed is reached, from the samples around a step.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::load::{Recording, Sample};
use crate::stats;

/// Time resolution of the analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resolution {
    /// End of a phase, in which the speed counts as settled.
    pub(super) plateau: Duration,
    /// Time over which a rate is computed; it is attributed to the middle.
    pub(super) window: Duration,
    /// Interval between the times at which the rate is computed.
    pub(super) grid: Duration,
}

/// For steps that take tens of milliseconds.
const COARSE_RESOLUTION: Resolution = Resolution {
    plateau: Duration::from_millis(500),
    window: Duration::from_millis(20),
    grid: Duration::from_millis(5),
};
/// The new speed is reached at this part of the plateau, …
const REACHED_SHARE: f64 = 0.9;
/// … if the rate stays above this part of it …
const KEPT_SHARE: f64 = 0.8;
/// … for this long.
const KEPT_FOR: Duration = Duration::from_millis(100);

/// Result of one change of the load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of pairs running after the step.
    pub pairs: usize,
    /// The settled speed: the median of the rates between samples in the last 500 ms of the phase, in
    /// requests per second.
    pub plateau_per_s: f64,
    /// Milliseconds from the step to the middle of the first 20 ms with at least 90 % of the plateau, if no
    /// 20 ms in the next 100 ms have less than 80 %. At least 10, because the 20 ms lie after the step.
    /// `None` if there is no such time in the phase.
    pub reached_ms: Option<f64>,
}

/// All changes of load in `recording`, in order; the start of the first phase is not one.
pub fn analyse(recording: &Recording) -> Vec<Step> {
    analyse_through(COARSE_RESOLUTION, recording)
}

/// The same with another time resolution, which the times in [`Step`] then refer to.
pub(super) fn analyse_through(resolution: Resolution, recording: &Recording) -> Vec<Step> {
    steps(resolution, recording, |plateau_per_s| plateau_per_s)
}

/// The same, with the times until 90 % of `best_per_s` instead of each step's own plateau.
pub(super) fn analyse_against(resolution: Resolution, recording: &Recording, best_per_s: f64) -> Vec<Step> {
    steps(resolution, recording, |_| best_per_s)
}

fn steps(resolution: Resolution, recording: &Recording, best_per_s: impl Fn(f64) -> f64) -> Vec<Step> {
    let starts: Vec<u64> = recording.phases.iter().map(|phase| phase.at_ns).collect();
    let ends = starts.iter().skip(2).copied().chain([recording.end_ns]);
    let phases = recording.phases.iter().skip(1).zip(ends);
    phases
        .map(|(phase, end_ns)| {
            let plateau_per_s = plateau(resolution, &recording.samples, phase.at_ns, end_ns);
            let best_per_s = best_per_s(plateau_per_s);
            let reached_ms = reached_ms(resolution, &recording.samples, phase.at_ns, end_ns, best_per_s);
            Step { pairs: phase.pairs, plateau_per_s, reached_ms }
        })
        .collect()
}

fn plateau(resolution: Resolution, samples: &[Sample], start_ns: u64, end_ns: u64) -> f64 {
    let from_ns = start_ns.max(end_ns.saturating_sub(ns(resolution.plateau)));
    let settled = samples.windows(2).filter(|pair| pair[0].at_ns >= from_ns && pair[1].at_ns <= end_ns);
    let rates: Vec<f64> = settled
        .map(|pair| per_second((pair[1].requests - pair[0].requests) as f64, pair[1].at_ns - pair[0].at_ns))
        .collect();
    stats::median(&rates).unwrap_or_default()
}

fn reached_ms(
    resolution: Resolution,
    samples: &[Sample],
    start_ns: u64,
    end_ns: u64,
    best_per_s: f64,
) -> Option<f64> {
    if best_per_s <= 0.0 {
        return None;
    }
    let (window, grid) = (ns(resolution.window), ns(resolution.grid));
    let count = end_ns.saturating_sub(start_ns).checked_sub(window)? / grid + 1;
    let parts: Vec<f64> = (0..count)
        .map(|i| {
            let from_ns = start_ns + i * grid;
            let done = done_at(samples, from_ns + window) - done_at(samples, from_ns);
            per_second(done, window) / best_per_s
        })
        .collect();
    let kept = usize::try_from(ns(KEPT_FOR) / grid).unwrap_or(usize::MAX) + 1;
    let there = |next: &[f64]| next[0] >= REACHED_SHARE && next.iter().all(|&part| part >= KEPT_SHARE);
    let first = parts.windows(kept).position(there)?;
    Some((resolution.window / 2 + resolution.grid * u32::try_from(first).ok()?).as_secs_f64() * 1e3)
}

/// The requests completed at `at_ns`, interpolated linearly between samples.
fn done_at(samples: &[Sample], at_ns: u64) -> f64 {
    let after = samples.partition_point(|sample| sample.at_ns <= at_ns);
    match (after.checked_sub(1).map(|before| samples[before]), samples.get(after)) {
        (Some(before), Some(after)) => {
            let part = (at_ns - before.at_ns) as f64 / (after.at_ns - before.at_ns) as f64;
            before.requests as f64 + part * (after.requests - before.requests) as f64
        }
        (Some(last), None) => last.requests as f64,
        (None, _) => 0.0,
    }
}

fn per_second(requests: f64, time_ns: u64) -> f64 {
    if time_ns == 0 { 0.0 } else { requests * 1e9 / time_ns as f64 }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Rng;
    use crate::steps::Phase;

    const MS: u64 = 1_000_000;

    /// Two phases of 1.5 s; `rate(ms since the step)` in requests per millisecond, negative times before it.
    fn recording(rate: impl Fn(i64) -> u64) -> Recording {
        let mut done = 0;
        let samples = (0..=3005_u64)
            .filter_map(|ms| {
                let sample = Sample { at_ns: ms * MS, requests: done };
                done += rate(i64::try_from(ms).unwrap() - 1500);
                ms.is_multiple_of(5).then_some(sample)
            })
            .collect();
        let phases = vec![phase(0, 1), phase(1500 * MS, 16)];
        Recording { phases, end_ns: 3000 * MS, samples }
    }

    fn phase(at_ns: u64, pairs: usize) -> Phase {
        Phase { at_ns, pairs, allowed_before: 2, all_ran_ns: None }
    }

    fn step(rate: impl Fn(i64) -> u64) -> Step {
        let steps = analyse(&recording(rate));
        assert_eq!(steps.len(), 1);
        assert_eq!(steps[0].pairs, 16);
        steps[0]
    }

    #[track_caller]
    fn assert_near(found: Option<f64>, expected: f64, tolerance: f64) {
        assert!(found.is_some_and(|ms| (ms - expected).abs() <= tolerance), "{found:?}, not {expected}");
    }

    #[test]
    fn an_immediate_step_takes_half_a_window() {
        let step = step(|ms| if ms < 0 { 10 } else { 100 });
        assert!((step.plateau_per_s - 100_000.0).abs() < 1.0, "{step:?}");
        assert_near(step.reached_ms, 10.0, 0.01);
    }

    #[test]
    fn a_late_step_is_found_where_it_is() {
        // From 5 to 100 at 200 ms: 90 % is reached when 0.9 × 20 ms of the window lie behind it.
        assert_near(step(|ms| if ms < 200 { 5 } else { 100 }).reached_ms, 208.0, 5.0);
    }

    #[test]
    fn a_fall_of_the_rate_counts_as_there_and_a_gap_after_it_does_not() {
        assert_near(step(|ms| if ms < 0 { 100 } else { 10 }).reached_ms, 10.0, 0.01);
        let stalled = |ms| if (0..60).contains(&ms) { 0 } else { 10 };
        assert_near(step(stalled).reached_ms, 68.0, 5.0);
    }

    #[test]
    fn a_peak_that_does_not_last_is_not_the_new_speed() {
        let peak = |ms| if (0..90).contains(&ms) || ms >= 400 { 100 } else { 50 };
        assert_near(step(peak).reached_ms, 405.0, 5.0);
    }

    #[test]
    fn noise_does_not_hide_the_step() {
        for seed in 0..20 {
            let noise: Vec<u64> = {
                let mut rng = Rng::new(seed);
                (0..3010).map(|_| rng.below(21) as u64).collect()
            };
            let rate = |ms: i64| {
                let base = if ms < 120 { 40 } else { 100 };
                base + noise[usize::try_from(ms + 1500).unwrap()] - 10
            };
            let step = step(rate);
            assert!((step.plateau_per_s / 100_000.0 - 1.0).abs() < 0.03, "{step:?}");
            assert_near(step.reached_ms, 127.0, 10.0);
        }
    }

    #[test]
    fn what_swings_or_stands_still_never_reaches_its_plateau() {
        // Drops every 80 ms, so no 100 ms are good.
        assert_eq!(step(|ms| if ms.rem_euclid(80) < 20 { 10 } else { 100 }).reached_ms, None);
        let still = step(|ms| u64::from(ms < 0));
        assert!(still.plateau_per_s.abs() < f64::EPSILON && still.reached_ms.is_none(), "{still:?}");
    }

    #[test]
    fn missing_samples_cost_no_more_than_their_gap() {
        for missing in 0..3 {
            let mut recording = recording(|ms| if ms < 200 { 5 } else { 100 });
            recording.samples.retain(|sample| sample.at_ns / (5 * MS) % 3 != missing);
            assert_near(analyse(&recording)[0].reached_ms, 208.0, 10.0);
        }
    }
}
