//! Results of all steps: times per direction, untouched and under Gleaner, and the ratio of the plateaus.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::analysis::{Step, analyse};
use super::load::Recording;
use crate::mode::Mode;
use crate::stats::{self, Estimate};

/// Direction of a change of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From one pair to all.
    Up,
    /// From all pairs to one.
    Down,
}

/// Times of the steps in one direction, in milliseconds; `None` if the plateau was not reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Median.
    pub median_ms: Option<f64>,
    /// 90th percentile (nearest rank).
    pub p90_ms: Option<f64>,
    /// Maximum.
    pub max_ms: Option<f64>,
    /// Median plateau, in requests per second.
    pub plateau_per_s: Option<f64>,
}

/// One run of the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// `default` or `gleaner`.
    pub mode: String,
    /// Times of the steps up.
    pub up: Times,
    /// Times of the steps down.
    pub down: Times,
    /// Every step in order, from which the times are computed.
    pub steps: Vec<Step>,
    /// The raw counts, from which the steps are computed.
    pub recording: Recording,
}

/// Both runs, compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The untouched run.
    pub default: Measured,
    /// The run under Gleaner.
    pub gleaner: Measured,
    /// Ratio of the plateaus after steps up, Gleaner to default, paired by number of the step.
    pub up_ratio: Option<Estimate>,
    /// The same after steps down.
    pub down_ratio: Option<Estimate>,
}

impl Measured {
    /// Evaluates a `recording` made in `mode`.
    pub fn new(recording: Recording, mode: &Mode) -> Self {
        let steps = analyse(&recording);
        let (up, down) = (Times::of(&steps, Direction::Up), Times::of(&steps, Direction::Down));
        Self { mode: mode.to_string(), up, down, steps, recording }
    }
}

impl Times {
    /// Times of the steps in one direction.
    pub fn of(steps: &[Step], direction: Direction) -> Self {
        let mut times: Vec<f64> =
            towards(steps, direction).map(|step| step.reached_ms.unwrap_or(f64::INFINITY)).collect();
        times.sort_by(f64::total_cmp);
        let finite = |time: Option<f64>| time.filter(|time| time.is_finite());
        let p90 = stats::nearest_rank(times.len(), 0.9).and_then(|rank| times.get(rank).copied());
        let plateaus: Vec<f64> = towards(steps, direction).map(|step| step.plateau_per_s).collect();
        Self {
            median_ms: finite(stats::median(&times)),
            p90_ms: finite(p90),
            max_ms: finite(times.last().copied()),
            plateau_per_s: stats::median(&plateaus),
        }
    }
}

impl Report {
    /// Compares the two runs.
    pub fn new(default: Measured, gleaner: Measured) -> Self {
        let ratio = |direction| {
            let plateaus = |run: &Measured| -> Vec<Option<f64>> {
                towards(&run.steps, direction).map(|step| Some(step.plateau_per_s)).collect()
            };
            stats::paired_ratio(&plateaus(&gleaner), &plateaus(&default))
        };
        let (up_ratio, down_ratio) = (ratio(Direction::Up), ratio(Direction::Down));
        Self { default, gleaner, up_ratio, down_ratio }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ms from the step to 90 % of the new plateau; plateaus in requests/s")?;
        writeln!(f, "load   mode     median     p90     max   plateau")?;
        let load = |f: &mut fmt::Formatter<'_>, name, of: fn(&Measured) -> Times, ratio: Option<Estimate>| {
            for run in [&self.default, &self.gleaner] {
                let times = of(run);
                let [median, p90, max] = [times.median_ms, times.p90_ms, times.max_ms]
                    .map(|time| time.map_or_else(|| String::from("never"), |ms| format!("{ms:.1}")));
                let plateau = times.plateau_per_s.unwrap_or_default();
                writeln!(f, "{name:<6} {:<8} {median:>6} {p90:>7} {max:>7} {plateau:>9.0}", run.mode)?;
            }
            ratio.map_or(Ok(()), |ratio| writeln!(f, "{name:<6} plateau gleaner/default {ratio}"))
        };
        load(f, "1->16", |run| run.up, self.up_ratio)?;
        load(f, "16->1", |run| run.down, self.down_ratio)
    }
}

fn towards(steps: &[Step], direction: Direction) -> impl Iterator<Item = &Step> {
    steps.iter().filter(move |step| (step.pairs > 1) == (direction == Direction::Up))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(mode: &Mode, plateau_per_s: f64, times: &[(usize, Option<f64>)]) -> Measured {
        let steps: Vec<Step> =
            times.iter().map(|&(pairs, reached_ms)| Step { pairs, plateau_per_s, reached_ms }).collect();
        let recording = Recording { phases: Vec::new(), end_ns: 0, samples: Vec::new() };
        let (up, down) = (Times::of(&steps, Direction::Up), Times::of(&steps, Direction::Down));
        Measured { mode: mode.to_string(), up, down, steps, recording }
    }

    #[test]
    fn a_plateau_that_was_not_reached_is_longer_than_any_time() {
        let times = [(16, Some(30.0)), (1, Some(500.0)), (16, None), (16, Some(20.0))];
        let up = measured(&Mode::Default, 7.0, &times).up;
        assert_eq!((up.median_ms, up.p90_ms, up.max_ms), (Some(30.0), None, None));
        assert_eq!(up.plateau_per_s, Some(7.0));
        let ten: Vec<_> = (1..=10).map(|ms| (16, Some(f64::from(ms)))).collect();
        let up = measured(&Mode::Default, 7.0, &ten).up;
        assert_eq!((up.median_ms, up.p90_ms, up.max_ms), (Some(5.5), Some(9.0), Some(10.0)));
    }

    #[test]
    fn both_directions_have_a_line_for_each_run_and_one_for_the_plateaus() {
        let default = measured(&Mode::Default, 100.0, &[(16, None), (1, Some(12.0))]);
        let gleaner = measured(&Mode::Gleaner, 250.0, &[(16, Some(100.1)), (1, None)]);
        let report = Report::new(default, gleaner);
        assert_eq!(report.up_ratio.map(|ratio| ratio.median), Some(2.5));
        let text = report.to_string();
        let start = |words: &[&str]| {
            text.lines().any(|line| line.split_whitespace().take(words.len()).eq(words.iter().copied()))
        };
        assert!(start(&["1->16", "default", "never"]) && start(&["1->16", "gleaner", "100.1"]), "{text}");
        assert!(start(&["16->1", "default", "12.0"]) && start(&["16->1", "gleaner", "never"]), "{text}");
        assert!(start(&["16->1", "plateau", "gleaner/default", "2.50"]), "{text}");
    }
}
