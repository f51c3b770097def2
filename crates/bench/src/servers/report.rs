//! What a run measured, with everything needed to judge it: raw samples, environment, commands, verdicts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cell::{CpuUse, Measured};
use super::rows::{OF_BEST_STATIC, OF_DEFAULT};
use super::{Environment, Mode, Placement, Row, Sample};
use crate::runner::{Failure, RowSamples};
use crate::stats::{Estimate, estimate, median, paired_ratio, spread};

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The command that repeats the run.
    pub repeat_with: String,
    /// What it was measured on.
    pub environment: Environment,
    /// Warm-up before each window, in seconds.
    pub warmup_s: f64,
    /// Window, in seconds.
    pub window_s: f64,
    /// Rounds per row.
    pub rounds: usize,
    /// Seed of the order of modes.
    pub seed: u64,
    /// Steal over the whole run, in stolen vCPUs (1.0 is one vCPU all the time).
    pub steal: f64,
    /// Whether a signal ended the run before its time.
    pub interrupted: bool,
    /// The rows, in the order of the tables.
    pub rows: Vec<RowReport>,
    /// The cells that could not be measured.
    pub failures: Vec<Failure>,
}

/// One row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowReport {
    /// Its name.
    pub name: String,
    /// What is counted, per second.
    pub unit: String,
    /// What the modes were applied to.
    pub placement: Placement,
    /// The ratio to the default mode that Gleaner has to reach here, besides the general ones.
    pub target: Option<f64>,
    /// The command lines of server and client, by mode.
    pub commands: BTreeMap<String, Vec<String>>,
    /// The modes, in the order of the tables.
    pub modes: Vec<ModeReport>,
    /// The fixed setting with the highest median ratio, which is known only afterwards.
    pub best_static: Option<String>,
    /// Gleaner relative to that setting, paired per round.
    pub gleaner_of_best_static: Option<Estimate>,
    /// Every target of the row that Gleaner missed, with the numbers; `None` if that cannot be said.
    pub missed: Option<Vec<String>>,
}

/// One mode of a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModeReport {
    /// Its name.
    pub name: String,
    /// Median and interval of the rate, per second.
    pub rate: Option<Estimate>,
    /// Range of the rates relative to their median.
    pub spread: Option<f64>,
    /// Ratio to the default mode, paired per round.
    pub of_default: Option<Estimate>,
    /// Medians of the machine's CPU use.
    pub cpu: Option<CpuUse>,
    /// The raw samples by round; null where there is none.
    pub samples: Vec<Option<Sample>>,
}

impl RowReport {
    /// Judges the samples of one row; `samples[mode][round]` as in [`RowSamples`].
    pub fn new(row: &Row, modes: &[Mode], measured: &RowSamples<Measured>) -> Self {
        let samples: Vec<Vec<Option<Sample>>> = measured
            .samples
            .iter()
            .map(|mode| mode.iter().map(|m| Some(m.as_ref()?.sample)).collect())
            .collect();
        let rates: Vec<Vec<Option<f64>>> =
            samples.iter().map(|mode| mode.iter().map(|s| Some((*s)?.rate)).collect()).collect();
        let index = |wanted: &Mode| modes.iter().position(|mode| mode == wanted);
        let default = index(&Mode::Default);
        let of_default = |mode: usize| paired_ratio(&rates[mode], &rates[default?]);
        let mode_report = |(mode, name): (usize, &Mode)| {
            let present: Vec<f64> = rates[mode].iter().flatten().copied().collect();
            ModeReport {
                name: name.to_string(),
                rate: estimate(&present),
                spread: spread(&present),
                of_default: of_default(mode),
                cpu: cpu(&samples[mode]),
                samples: samples[mode].clone(),
            }
        };
        let reports: Vec<ModeReport> = modes.iter().enumerate().map(mode_report).collect();
        let ratio = |mode: usize| reports[mode].of_default.map(|e| e.median);
        let best = (0..modes.len())
            .filter(|&mode| matches!(modes[mode], Mode::Fixed(_)) && ratio(mode).is_some())
            .max_by(|&a, &b| ratio(a).unwrap_or(0.0).total_cmp(&ratio(b).unwrap_or(0.0)));
        let gleaner = index(&Mode::Gleaner);
        let of_best = gleaner.zip(best).and_then(|(g, b)| paired_ratio(&rates[g], &rates[b]));
        let missed =
            gleaner.and_then(ratio).map(|ratio| missed(row.target, ratio, of_best.map(|e| e.median)));
        let commands = |mode: usize| Some(measured.samples[mode].iter().flatten().next()?.commands.clone());
        Self {
            name: row.name.to_owned(),
            unit: row.unit.to_owned(),
            placement: row.placement,
            target: row.target,
            commands: (0..modes.len()).filter_map(|m| Some((modes[m].to_string(), commands(m)?))).collect(),
            best_static: best.map(|mode| modes[mode].to_string()),
            gleaner_of_best_static: of_best,
            missed,
            modes: reports,
        }
    }

    /// One mode by its name.
    pub fn mode(&self, name: &str) -> Option<&ModeReport> {
        self.modes.iter().find(|mode| mode.name == name)
    }

    /// One line for the terminal.
    pub fn line(&self) -> String {
        let mode = |mode: &ModeReport| match (mode.of_default, mode.rate) {
            (Some(ratio), _) if mode.name != "default" => format!("{} {:.2}x", mode.name, ratio.median),
            (_, Some(rate)) => format!("{} {:.0} {}/s", mode.name, rate.median, self.unit),
            _ => format!("{} -", mode.name),
        };
        format!("{:<28}{}", self.name, self.modes.iter().map(mode).collect::<Vec<_>>().join("  "))
    }
}

/// The targets that these ratios of Gleaner miss.
fn missed(target: Option<f64>, of_default: f64, of_best_static: Option<f64>) -> Vec<String> {
    let checks = [
        (Some(of_default), target, "default"),
        (Some(of_default), Some(OF_DEFAULT), "default"),
        (of_best_static, Some(OF_BEST_STATIC), "best static"),
    ];
    let miss = |(ratio, target, base): (Option<f64>, Option<f64>, &str)| {
        let (ratio, target) = (ratio?, target?);
        (ratio < target).then(|| format!("{ratio:.2} of {base}, not {target:.2}"))
    };
    checks.into_iter().filter_map(miss).collect()
}

fn cpu(samples: &[Option<Sample>]) -> Option<CpuUse> {
    let of = |part: fn(&CpuUse) -> f64| {
        median(&samples.iter().flatten().map(|sample| part(&sample.cpu)).collect::<Vec<_>>())
    };
    Some(CpuUse { busy: of(|c| c.busy)?, polling: of(|c| c.polling)?, steal: of(|c| c.steal)? })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::servers::find;

    fn row(rates: &[[f64; 3]]) -> RowReport {
        let measured = |rate: &f64| {
            let sample = Sample { rate: *rate, window: Duration::from_secs(4), cpu: CpuUse::default() };
            Some(Measured { sample, commands: vec![String::from("server")] })
        };
        let samples = rates.iter().map(|mode| mode.iter().map(measured).collect()).collect();
        let modes: Vec<Mode> =
            ["default", "gleaner", "qos-poll", "pack:1"].iter().map(|m| m.parse().unwrap()).collect();
        RowReport::new(&find("redis-1").unwrap()[0], &modes, &RowSamples { samples })
    }

    #[test]
    fn gleaner_is_held_against_the_best_static_setting() {
        let report = row(&[[10.0; 3], [60.0; 3], [50.0; 3], [80.0; 3]]);
        assert_eq!(report.best_static.as_deref(), Some("pack:1"));
        assert_eq!(report.gleaner_of_best_static.map(|e| e.median), Some(0.75));
        assert_eq!(report.missed.unwrap(), ["0.75 of best static, not 0.95"]);
    }

    #[test]
    fn every_missed_target_is_named() {
        let report = row(&[[10.0; 3], [9.0; 3], [9.0; 3], [8.0; 3]]);
        assert_eq!(report.missed.unwrap(), ["0.90 of default, not 5.00", "0.90 of default, not 0.97"]);
        let report = row(&[[10.0; 3], [70.0; 3], [50.0; 3], [70.0; 3]]);
        assert_eq!(report.missed.as_deref(), Some(&[][..]));
    }
}
