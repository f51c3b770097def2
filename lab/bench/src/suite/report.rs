//! Results of a run, with everything needed to judge them: raw samples, environment, commands, verdicts.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use gleaner_proto::result::{Better, Environment};
use serde::{Deserialize, Serialize};

use super::numbers::Numbers;
use super::part::Part;
use crate::environment::iso8601;
use crate::mode::Mode;
use crate::runner::{Failure, RowSamples};
use crate::servers::{Class, CpuUse, Latency, Measured, Placement, Row, Sample, Window};
use crate::stats::{Estimate, median};

/// Required ratio to the best fixed setting for every row: adaptivity may cost at most 5 %.
const MIN_TO_BEST_STATIC: f64 = 0.95;
/// Required ratio to the untouched system for every row: the guard's promise (at most 3 % worse).
const MIN_TO_DEFAULT: f64 = 0.97;
/// Required ratio to the best fixed setting in every single round of an unseen row.
const MIN_WORST_TO_BEST_STATIC: f64 = 0.7;
/// Upper limit of the mean latency, relative to the best fixed setting and to the untouched system.
const MAX_MEAN_LATENCY: f64 = 1.1;
/// The same for the 99th percentile.
const MAX_P99_LATENCY: f64 = 1.2;

/// Results of a whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The command that repeats the run.
    pub repeat_with: String,
    /// The machine.
    pub environment: Environment,
    /// Rounds per row, unless interrupted.
    pub rounds: usize,
    /// Seed of the order of modes.
    pub seed: u64,
    /// Steal over the whole run, in vCPUs (1.0 is one vCPU all the time); the largest of several runs.
    pub steal: f64,
    /// Whether a signal ended the run early.
    pub interrupted: bool,
    /// Earlier runs, of which rows were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Part>,
    /// By row, in the order of the tables.
    pub rows: Vec<RowReport>,
    /// Cells that could not be measured.
    pub failures: Vec<Failure>,
}

/// Results of one row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowReport {
    /// Name of the row.
    pub name: String,
    /// Unit of the rate, per second.
    pub unit: String,
    /// The processes that the mode is applied to.
    pub placement: Placement,
    /// How the row is judged.
    pub class: Class,
    /// Warm-up before each window, in seconds.
    pub warmup_s: f64,
    /// Length of the window, in seconds.
    pub window_s: f64,
    /// The required ratio of Gleaner to the default mode, in addition to the general requirements.
    pub target: Option<f64>,
    /// Command lines of server and client, by mode.
    pub commands: BTreeMap<String, Vec<String>>,
    /// By mode, in the order of the tables.
    pub modes: Vec<ModeReport>,
    /// The fixed setting with the highest median ratio, which is only known afterwards. This and the next two
    /// fields refer to the rate; an open loop has them in `latencies`.
    pub best_static: Option<String>,
    /// Ratio of Gleaner to that setting, paired by round.
    pub gleaner_of_best_static: Option<Estimate>,
    /// That ratio in Gleaner's worst round.
    pub worst_of_best_static: Option<f64>,
    /// Latencies of an open loop; empty for other rows.
    pub latencies: Vec<LatencyReport>,
    /// Each target of the row that Gleaner missed, with the numbers; `None` if undecidable.
    pub missed: Option<Vec<String>>,
}

/// One statistic of an open loop's latencies. Ratios below 1 are better.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Name of the statistic, and its starting point if not the send.
    pub name: String,
    /// Upper limit of Gleaner's ratios to the default mode and to the best fixed setting; `None`: not judged.
    pub limit: Option<f64>,
    /// By mode, in the order of the tables.
    pub modes: Vec<LatencyMode>,
    /// The fixed setting with the lowest median ratio.
    pub best_static: Option<String>,
    /// Ratio of Gleaner to that setting, paired by round.
    pub gleaner_of_best_static: Option<Estimate>,
    /// Each limit that Gleaner missed, with the numbers; `None` if undecidable.
    pub missed: Option<Vec<String>>,
}

/// The statistic in one mode.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LatencyMode {
    /// Name of the mode.
    pub name: String,
    /// Median of the latency with its interval, in microseconds.
    pub us: Option<Estimate>,
    /// Ratio to the default mode, paired by round.
    pub of_default: Option<Estimate>,
}

/// One mode of a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModeReport {
    /// Name of the mode.
    pub name: String,
    /// Median of the rate with its interval, per second.
    pub rate: Option<Estimate>,
    /// Range of the rates relative to their median.
    pub spread: Option<f64>,
    /// Ratio to the default mode, paired by round.
    pub of_default: Option<Estimate>,
    /// Medians of the machine's CPU use.
    pub cpu: Option<CpuUse>,
    /// Raw samples by round; null if missing.
    pub samples: Vec<Option<Sample>>,
}

impl Report {
    /// Start times of the first and the last window of these rows, UTC, ISO 8601.
    pub fn dates(&self, rows: &[String]) -> String {
        let rows = self.rows.iter().filter(|row| rows.contains(&row.name));
        let samples = rows.flat_map(|row| &row.modes).flat_map(|mode| mode.samples.iter().flatten());
        let began = samples.map(|sample| sample.began_unix_ms);
        let date = |ms: u64| iso8601(SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        match (began.clone().min(), began.max()) {
            (Some(first), Some(last)) => format!("{} to {}", date(first), date(last)),
            _ => self.environment.date.clone(),
        }
    }
}

impl RowReport {
    /// Judges the samples of one row; `samples[mode][round]` as in [`RowSamples`].
    pub fn new(row: &Row, window: Window, modes: &[Mode], measured: &RowSamples<Measured>) -> Self {
        let samples: Vec<Vec<Option<Sample>>> = measured
            .samples
            .iter()
            .map(|mode| mode.iter().map(|m| Some(m.as_ref()?.sample)).collect())
            .collect();
        let rates = Numbers::new(modes, &samples, Better::Higher, |sample| Some(sample.rate));
        let mode_report = |(mode, name): (usize, &Mode)| ModeReport {
            name: name.to_string(),
            rate: rates.estimate(mode),
            spread: rates.spread(mode),
            of_default: rates.of_default(mode),
            cpu: cpu(&samples[mode]),
            samples: samples[mode].clone(),
        };
        let commands = |mode: usize| Some(measured.samples[mode].iter().flatten().next()?.commands.clone());
        let by_rate = row.class != Class::Latency;
        let latencies = if by_rate { Vec::new() } else { latencies(modes, &samples) };
        let missed = if by_rate {
            rates.gleaner_of_default().map(|ratio| missed_rates(row, ratio.median, &rates))
        } else {
            latencies.iter().filter_map(|latency| latency.missed.clone()).reduce(|a, b| [a, b].concat())
        };
        Self {
            name: row.name.to_owned(),
            unit: row.unit.to_owned(),
            placement: row.placement,
            class: row.class,
            warmup_s: window.warmup.as_secs_f64(),
            window_s: window.length.as_secs_f64(),
            target: row.target,
            commands: (0..modes.len()).filter_map(|m| Some((modes[m].to_string(), commands(m)?))).collect(),
            best_static: rates.best_static().filter(|_| by_rate).map(|mode| modes[mode].to_string()),
            gleaner_of_best_static: rates.gleaner_of_best_static().filter(|_| by_rate),
            worst_of_best_static: rates.worst_of_best_static().filter(|_| by_rate),
            latencies,
            missed,
            modes: modes.iter().enumerate().map(mode_report).collect(),
        }
    }

    /// Number of rounds in which its modes were measured.
    pub fn rounds(&self) -> usize {
        self.modes.iter().map(|mode| mode.samples.len()).max().unwrap_or(0)
    }

    /// The mode called `name`.
    pub fn mode(&self, name: &str) -> Option<&ModeReport> {
        self.modes.iter().find(|mode| mode.name == name)
    }

    /// One line for the terminal.
    pub fn line(&self) -> String {
        let text = |name: &str, of_default: Option<Estimate>, own: Option<String>| match (of_default, own) {
            (Some(ratio), _) if name != "default" => format!("{name} {:.2}x", ratio.median),
            (_, Some(own)) => format!("{name} {own}"),
            _ => format!("{name} -"),
        };
        let rate = |mode: &ModeReport| {
            let rate = mode.rate.map(|rate| format!("{:.0} {}/s", rate.median, self.unit));
            text(&mode.name, mode.of_default, rate)
        };
        let latency = |latency: &LatencyReport| {
            let mode = |mode: &LatencyMode| {
                text(&mode.name, mode.of_default, mode.us.map(|us| format!("{:.1} us", us.median)))
            };
            let modes: Vec<String> = latency.modes.iter().map(mode).collect();
            format!("{} latency: {}", latency.name, modes.join("  "))
        };
        let parts: Vec<String> = match self.class {
            Class::Latency => self.latencies.iter().filter(|l| l.limit.is_some()).map(latency).collect(),
            Class::Rate | Class::Unseen => self.modes.iter().map(rate).collect(),
        };
        format!("{:<28}{}", self.name, parts.join("  "))
    }
}

/// The latencies of an open loop. Only the latency from the send is judged; delays of the client, whose timer
/// is a wake-up, too, are just reported.
fn latencies(modes: &[Mode], samples: &[Vec<Option<Sample>>]) -> Vec<LatencyReport> {
    let report = |name: &str, limit: Option<f64>, number: fn(&Latency) -> Option<f64>| {
        let of_sample = |sample: &Sample| number(sample.latency.as_ref()?);
        let numbers = Numbers::new(modes, samples, Better::Lower, of_sample);
        let mode = |(mode, name): (usize, &Mode)| LatencyMode {
            name: name.to_string(),
            us: numbers.estimate(mode),
            of_default: numbers.of_default(mode),
        };
        LatencyReport {
            name: name.to_owned(),
            limit,
            best_static: numbers.best_static().map(|mode| modes[mode].to_string()),
            gleaner_of_best_static: numbers.gleaner_of_best_static(),
            missed: limit.and_then(|limit| missed_latency(name, limit, &numbers)),
            modes: modes.iter().enumerate().map(mode).collect(),
        }
    };
    let mut reports = vec![
        report("mean", Some(MAX_MEAN_LATENCY), |l| Some(l.mean_us)),
        report("p99", Some(MAX_P99_LATENCY), |l| Some(l.p99_us)),
        report("mean from due", None, |l| l.due_mean_us),
        report("p99 from due", None, |l| l.due_p99_us),
    ];
    // sysbench does not know when its requests were due.
    reports.retain(|report| report.limit.is_some() || report.modes.iter().any(|mode| mode.us.is_some()));
    reports
}

/// The limits that a latency under Gleaner exceeds; `None` without Gleaner or the default mode.
fn missed_latency(name: &str, limit: f64, numbers: &Numbers) -> Option<Vec<String>> {
    let of_default = numbers.gleaner_of_default()?;
    let ratios = [(Some(of_default), "default"), (numbers.gleaner_of_best_static(), "best static")];
    let miss = |(ratio, base): (Option<Estimate>, &str)| {
        let ratio = ratio?.median;
        (ratio > limit).then(|| format!("{name} {ratio:.2} of {base}, not at most {limit:.2}"))
    };
    Some(ratios.into_iter().filter_map(miss).collect())
}

/// The targets that the rates under Gleaner miss.
fn missed_rates(row: &Row, of_default: f64, rates: &Numbers) -> Vec<String> {
    let of_best = rates.gleaner_of_best_static().map(|estimate| estimate.median);
    let worst = rates.worst_of_best_static().filter(|_| row.class == Class::Unseen);
    let checks = [
        (Some(of_default), row.target, "default"),
        (Some(of_default), Some(MIN_TO_DEFAULT), "default"),
        (of_best, Some(MIN_TO_BEST_STATIC), "best static"),
        (worst, Some(MIN_WORST_TO_BEST_STATIC), "best static in one round"),
    ];
    let miss = |(ratio, target, base): (Option<f64>, Option<f64>, &str)| {
        let (ratio, target) = (ratio?, target?);
        (ratio < target).then(|| format!("{ratio:.3} of {base}, not {target:.2}"))
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
    use super::*;
    use crate::servers::find;

    fn report(name: &str, numbers: &[[f64; 3]], sample: impl Fn(f64) -> Sample) -> RowReport {
        let measured =
            |number: &f64| Some(Measured { sample: sample(*number), commands: vec![String::from("server")] });
        let samples = numbers.iter().map(|mode| mode.iter().map(measured).collect()).collect();
        let modes = ["default", "gleaner", "qos-poll", "consolidate:1"].map(|m| Mode::here(m).unwrap());
        let row = find(name).unwrap()[0];
        RowReport::new(&row, row.window(None, None), &modes, &RowSamples { samples })
    }

    fn of_rate(rate: f64) -> Sample {
        Sample {
            rate,
            began_unix_ms: 0,
            window: Duration::from_secs(4),
            cpu: CpuUse::default(),
            latency: None,
        }
    }

    fn row(rates: &[[f64; 3]]) -> RowReport {
        report("redis-1", rates, of_rate)
    }

    /// A p99 of ten times the mean.
    fn of_latency(mean_us: f64) -> Sample {
        let latency = Latency {
            mean_us,
            p99_us: 10.0 * mean_us,
            due_mean_us: None,
            due_p99_us: None,
            client_cpu: None,
        };
        Sample { latency: Some(latency), ..of_rate(5000.0) }
    }

    #[test]
    fn a_lower_latency_is_better() {
        let report = report("redis-open-5000-1", &[[100.0; 3], [45.0; 3], [40.0; 3], [120.0; 3]], of_latency);
        let [mean, p99] = &report.latencies[..] else { panic!("{report:?}") };
        assert_eq!(mean.best_static.as_deref(), Some("qos-poll"));
        assert_eq!(mean.gleaner_of_best_static.map(|e| e.median), Some(1.125));
        assert_eq!(mean.missed.as_deref().unwrap(), ["mean 1.12 of best static, not at most 1.10"]);
        assert_eq!(p99.missed.as_deref(), Some(&[][..]), "the tail may be 20 % longer");
        assert_eq!(report.missed, mean.missed);
        assert_eq!(
            (report.best_static, report.gleaner_of_best_static),
            (None, None),
            "the rate is the client's"
        );
    }

    #[test]
    fn a_latency_above_that_of_the_untouched_system_is_missed() {
        let numbers = [[100.0; 3], [130.0; 3], [125.0; 3], [150.0; 3]];
        let report = report("redis-open-5000-1", &numbers, of_latency);
        let missed = ["mean 1.30 of default, not at most 1.10", "p99 1.30 of default, not at most 1.20"];
        assert_eq!(report.missed.as_deref().unwrap(), missed);
        assert!(report.line().contains("mean latency: default 100.0 us  gleaner 1.30x"), "{}", report.line());
    }

    #[test]
    fn one_bad_round_of_an_unseen_program_is_missed() {
        let numbers = [[10.0; 3], [80.0, 80.0, 50.0], [80.0; 3], [9.0; 3]];
        let bad = report("python-pipe", &numbers, of_rate).missed.unwrap();
        assert!(bad.contains(&String::from("0.625 of best static in one round, not 0.70")), "{bad:?}");
        assert!(!row(&numbers).missed.unwrap().iter().any(|missed| missed.contains("one round")));
    }

    #[test]
    fn gleaner_is_held_against_the_best_static_setting() {
        let report = row(&[[10.0; 3], [60.0; 3], [50.0; 3], [80.0; 3]]);
        assert_eq!(report.best_static.as_deref(), Some("consolidate:1"));
        assert_eq!(report.gleaner_of_best_static.map(|e| e.median), Some(0.75));
        assert_eq!(report.missed.unwrap(), ["0.750 of best static, not 0.95"]);
    }

    #[test]
    fn every_missed_target_is_named() {
        let report = row(&[[10.0; 3], [9.0; 3], [9.0; 3], [8.0; 3]]);
        assert_eq!(report.missed.unwrap(), ["0.900 of default, not 5.00", "0.900 of default, not 0.97"]);
        let report = row(&[[10.0; 3], [70.0; 3], [50.0; 3], [70.0; 3]]);
        assert_eq!(report.missed.as_deref(), Some(&[][..]));
    }
}
