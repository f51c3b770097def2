//! What the benchmark's tables show, and which targets Gleaner misses: computed from the samples.

use gleaner_proto::result::{Class, Metric, Row, ServerRow};

use super::numbers::Numbers;
use crate::mode::Mode;
use crate::stats::Estimate;

/// Required ratio to the best fixed setting for every row: adaptivity may cost at most 5 %.
const MIN_TO_BEST_STATIC: f64 = 0.95;
/// Required ratio to the untouched system for every row: the guard's promise (at most 3 % worse).
const MIN_TO_DEFAULT: f64 = 0.97;
/// Required ratio to the best fixed setting in every single round of an unseen row.
const MIN_WORST_TO_BEST_STATIC: f64 = 0.7;
/// Required ratio of a program that gleanerd finds to one under `gleaner run`; where services run beside each other, to
/// the best fixed setting.
const MIN_DAEMON: f64 = 0.95;
/// Required ratio under gleanerd to the untouched system: nobody asked for it there.
const MIN_DAEMON_TO_DEFAULT: f64 = 0.98;
/// Upper limit of the mean latency, relative to the best fixed setting and to the untouched system.
const MAX_MEAN_LATENCY: f64 = 1.1;
/// The same for the 99th percentile.
const MAX_P99_LATENCY: f64 = 1.2;

/// The latencies of an open loop, with their limits. Only that from the send is judged; delays of the client, whose
/// timer is a wake-up, too, are just reported.
const LATENCIES: [(&str, Metric, Option<f64>); 4] = [
    ("mean", Metric::MeanUs, Some(MAX_MEAN_LATENCY)),
    ("p99", Metric::P99Us, Some(MAX_P99_LATENCY)),
    ("mean from due", Metric::DueMeanUs, None),
    ("p99 from due", Metric::DueP99Us, None),
];

/// A row of the benchmark, judged.
#[derive(Debug, Clone)]
pub struct RowReport<'r> {
    /// What was measured.
    pub row: &'r Row,
    /// How, and what is required.
    pub server: ServerRow,
    /// The rate; of an open loop, its latencies.
    pub standings: Vec<Standing>,
    /// Each target that Gleaner missed, with the numbers; `None` if undecidable.
    pub missed: Option<Vec<String>>,
}

/// One number in all modes.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Name of the number.
    pub name: &'static str,
    /// Latencies only: upper limit of Gleaner's ratios to the default mode and to the best fixed setting; `None`:
    /// not judged.
    pub limit: Option<f64>,
    /// By mode, in the order of the tables.
    pub modes: Vec<ModeStanding>,
    /// The fixed setting with the best median ratio to the default mode, which is only known afterwards.
    pub best_static: Option<String>,
    /// Ratio of Gleaner to that setting, paired by round.
    pub gleaner_of_best_static: Option<Estimate>,
    /// That ratio in Gleaner's worst round.
    pub worst_of_best_static: Option<f64>,
    /// Ratio of gleanerd to `gleaner run`, paired by round.
    pub daemon_of_gleaner: Option<Estimate>,
    /// Each target that Gleaner missed, with the numbers; `None` if undecidable.
    pub missed: Option<Vec<String>>,
}

/// One number in one mode.
#[derive(Debug, Clone)]
pub struct ModeStanding {
    /// Name of the mode.
    pub name: String,
    /// Median with its interval.
    pub value: Option<Estimate>,
    /// Ratio to the default mode, paired by round.
    pub of_default: Option<Estimate>,
}

impl<'r> RowReport<'r> {
    /// Judges a row; `None` if it is not a server's.
    pub fn new(row: &'r Row) -> Option<Self> {
        let server = row.server?;
        let standings = match server.class {
            Class::Rate | Class::Unseen => vec![rate(row, &server)],
            Class::Latency => latencies(row),
        };
        let missed = standings.iter().filter_map(|standing| standing.missed.clone());
        Some(Self { row, server, missed: missed.reduce(|a, b| [a, b].concat()), standings })
    }
}

impl Standing {
    fn new(name: &'static str, numbers: &Numbers<'_>) -> Self {
        let mode = |mode: usize| ModeStanding {
            name: numbers.name(mode).to_owned(),
            value: numbers.estimate(mode),
            of_default: numbers.of_default(mode),
        };
        let [gleaner, daemon] = [Mode::GLEANER, Mode::DAEMON].map(|name| numbers.index(name));
        let best = numbers.best_static();
        let ratio = |(mode, base)| numbers.ratio(mode, base);
        Self {
            name,
            limit: None,
            modes: (0..numbers.modes()).map(mode).collect(),
            best_static: best.map(|mode| numbers.name(mode).to_owned()),
            gleaner_of_best_static: gleaner.zip(best).and_then(ratio),
            worst_of_best_static: gleaner.zip(best).and_then(|(mode, base)| numbers.worst(mode, base)),
            daemon_of_gleaner: daemon.zip(gleaner).and_then(ratio),
            missed: None,
        }
    }

    /// The mode called `name`.
    pub fn mode(&self, name: &str) -> Option<&ModeStanding> {
        self.modes.iter().find(|mode| mode.name == name)
    }

    fn of_default(&self, name: &str) -> Option<f64> {
        Some(self.mode(name)?.of_default?.median)
    }

    /// What gleanerd is held against: a ratio, its required value where more is better, and to what it is one.
    fn daemon(&self, numbers: &Numbers<'_>, beside: bool) -> [(Option<f64>, f64, &'static str); 2] {
        let median = |ratio: Estimate| ratio.median;
        let best = numbers.index(Mode::DAEMON).zip(numbers.best_static());
        let other = if beside {
            (best.and_then(|(mode, base)| numbers.ratio(mode, base)).map(median), MIN_DAEMON, "best static")
        } else {
            (self.daemon_of_gleaner.map(median), MIN_DAEMON, "gleaner")
        };
        [(self.of_default(Mode::DAEMON), MIN_DAEMON_TO_DEFAULT, "default"), other]
    }
}

fn rate(row: &Row, server: &ServerRow) -> Standing {
    let numbers = Numbers::new(row, Metric::Throughput);
    let standing = Standing::new("rate", &numbers);
    let of_default = standing.of_default(Mode::GLEANER);
    let of_best = standing.gleaner_of_best_static.map(|ratio| ratio.median);
    let worst = standing.worst_of_best_static.filter(|_| server.class == Class::Unseen);
    let checks = [
        (of_default, server.target, "default"),
        (of_default, Some(MIN_TO_DEFAULT), "default"),
        (of_best, Some(MIN_TO_BEST_STATIC), "best static"),
        (worst, Some(MIN_WORST_TO_BEST_STATIC), "best static in one round"),
    ];
    let miss = |who: &str, ratio: f64, target: f64, base: &str| {
        (ratio < target).then(|| format!("{who}{ratio:.3} of {base}, not {target:.2}"))
    };
    let gleaner = checks.into_iter().filter_map(|(ratio, target, base)| miss("", ratio?, target?, base));
    let daemon = standing.daemon(&numbers, !row.co_runners.is_empty());
    let daemon =
        daemon.into_iter().filter_map(|(ratio, target, base)| miss("gleanerd ", ratio?, target, base));
    Standing { missed: decided(&standing).then(|| gleaner.chain(daemon).collect()), ..standing }
}

fn latencies(row: &Row) -> Vec<Standing> {
    let standings = LATENCIES.into_iter().map(|(name, metric, limit)| {
        let numbers = Numbers::new(row, metric);
        let standing = Standing::new(name, &numbers);
        let missed = limit.filter(|_| decided(&standing)).map(|limit| {
            let best = standing.gleaner_of_best_static.map(|ratio| ratio.median);
            let gleaner = [
                ("", standing.of_default(Mode::GLEANER), limit, "default"),
                ("", best, limit, "best static"),
            ];
            let daemon = standing.daemon(&numbers, !row.co_runners.is_empty());
            let daemon = daemon.map(|(ratio, target, base)| ("gleanerd ", ratio, target.recip(), base));
            let miss = |(who, ratio, limit, base): (&str, Option<f64>, f64, &str)| {
                let ratio = ratio.filter(|ratio| *ratio > limit)?;
                Some(format!("{who}{name} {ratio:.2} of {base}, not at most {limit:.2}"))
            };
            gleaner.into_iter().chain(daemon).filter_map(miss).collect()
        });
        Standing { limit, missed, ..standing }
    });
    // sysbench does not know when its requests were due.
    let measured = |standing: &Standing| standing.modes.iter().any(|mode| mode.value.is_some());
    standings.filter(|standing| standing.limit.is_some() || measured(standing)).collect()
}

/// Whether Gleaner or gleanerd was held against the default mode.
fn decided(standing: &Standing) -> bool {
    [Mode::GLEANER, Mode::DAEMON].iter().any(|mode| standing.of_default(mode).is_some())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gleaner_proto::result::{Cell, Sample};

    use super::*;
    use crate::servers::find;

    const MODES: [&str; 4] = ["default", "gleaner", "qos-poll", "consolidate:1"];

    /// The row `name`, whose samples have these numbers by mode and round: the rate, or the mean latency, with a p99
    /// of ten times that.
    fn row(name: &str, numbers: &[[f64; 3]; 4]) -> Row {
        row_in(&MODES, name, numbers)
    }

    fn row_in(modes: &[&str], name: &str, numbers: &[[f64; 3]]) -> Row {
        let row = find(name).unwrap()[0];
        let open = row.class == Class::Latency;
        let sample = |(round, number): (usize, &f64)| Sample {
            round,
            position: 0,
            start_s: 0.0,
            metrics: if open {
                BTreeMap::from([(Metric::MeanUs, *number), (Metric::P99Us, 10.0 * number)])
            } else {
                BTreeMap::from([(Metric::Throughput, *number)])
            },
            timeline: Vec::new(),
        };
        let cell = |(mode, numbers): (&&str, &[f64; 3])| Cell {
            mode: (*mode).to_owned(),
            command: String::new(),
            samples: numbers.iter().enumerate().map(sample).collect(),
            summaries: BTreeMap::new(),
        };
        Row {
            name: name.to_owned(),
            unit: row.unit.to_owned(),
            primary: Metric::Throughput,
            workload: None,
            server: Some(row.described(row.window(None, None))),
            co_runners: Vec::new(),
            paper: BTreeMap::new(),
            paper_ratio: BTreeMap::new(),
            cells: modes.iter().zip(numbers).map(cell).collect(),
            comparisons: Vec::new(),
        }
    }

    fn missed(name: &str, numbers: &[[f64; 3]; 4]) -> Vec<String> {
        RowReport::new(&row(name, numbers)).unwrap().missed.unwrap()
    }

    #[test]
    fn a_lower_latency_is_better() {
        let row = row("redis-open-5000-1", &[[100.0; 3], [45.0; 3], [40.0; 3], [120.0; 3]]);
        let report = RowReport::new(&row).unwrap();
        let [mean, p99] = &report.standings[..] else { panic!("{report:?}") };
        assert_eq!(mean.best_static.as_deref(), Some("qos-poll"));
        assert_eq!(mean.gleaner_of_best_static.map(|e| e.median), Some(1.125));
        assert_eq!(mean.missed.as_deref().unwrap(), ["mean 1.12 of best static, not at most 1.10"]);
        assert_eq!(p99.missed.as_deref(), Some(&[][..]), "the tail may be 20 % longer");
        assert_eq!(report.missed, mean.missed);
    }

    #[test]
    fn a_latency_above_that_of_the_untouched_system_is_missed() {
        let numbers = [[100.0; 3], [130.0; 3], [125.0; 3], [150.0; 3]];
        let expected = ["mean 1.30 of default, not at most 1.10", "p99 1.30 of default, not at most 1.20"];
        assert_eq!(missed("redis-open-5000-1", &numbers), expected);
    }

    #[test]
    fn one_bad_round_of_an_unseen_program_is_missed() {
        let numbers = [[10.0; 3], [80.0, 80.0, 50.0], [80.0; 3], [9.0; 3]];
        let bad = missed("python-pipe", &numbers);
        assert!(bad.contains(&String::from("0.625 of best static in one round, not 0.70")), "{bad:?}");
        assert!(!missed("redis-1", &numbers).iter().any(|missed| missed.contains("one round")));
    }

    #[test]
    fn gleaner_is_held_against_the_best_static_setting() {
        let row = row("redis-1", &[[10.0; 3], [60.0; 3], [50.0; 3], [80.0; 3]]);
        let report = RowReport::new(&row).unwrap();
        let [rate] = &report.standings[..] else { panic!("{report:?}") };
        assert_eq!(rate.best_static.as_deref(), Some("consolidate:1"));
        assert_eq!(rate.gleaner_of_best_static.map(|e| e.median), Some(0.75));
        assert_eq!(report.missed.unwrap(), ["0.750 of best static, not 0.95"]);
    }

    #[test]
    fn every_missed_target_is_named() {
        let numbers = [[10.0; 3], [9.0; 3], [9.0; 3], [8.0; 3]];
        assert_eq!(missed("redis-1", &numbers), ["0.900 of default, not 5.00", "0.900 of default, not 0.97"]);
        let numbers = [[10.0; 3], [70.0; 3], [50.0; 3], [70.0; 3]];
        assert!(missed("redis-1", &numbers).is_empty());
    }

    #[test]
    fn gleanerd_is_held_against_gleaner_run_and_the_untouched_system() {
        let missed = |modes: &[&str], row: &str, numbers: &[[f64; 3]]| {
            RowReport::new(&row_in(modes, row, numbers)).unwrap().missed
        };
        let modes = ["default", "gleaner", "gleanerd"];
        let of_rates = |daemon: f64| missed(&modes, "redis-8", &[[10.0; 3], [20.0; 3], [daemon; 3]]).unwrap();
        assert!(of_rates(19.5).is_empty());
        assert_eq!(of_rates(18.0), ["gleanerd 0.900 of gleaner, not 0.95"]);
        let alone = missed(&["default", "gleanerd"], "redis-8", &[[10.0; 3], [9.0; 3]]);
        assert_eq!(alone.unwrap(), ["gleanerd 0.900 of default, not 0.98"]);
        let slower = missed(&modes, "redis-open-5000-1", &[[100.0; 3], [50.0; 3], [60.0; 3]]).unwrap();
        let of = |what: &str| format!("gleanerd {what} 1.20 of gleaner, not at most 1.05");
        assert_eq!(slower, [of("mean"), of("p99")]);
    }

    #[test]
    fn services_beside_each_other_are_held_against_the_best_static_setting() {
        let numbers = [[10.0; 3], [30.0; 3], [40.0; 3]];
        let mut row = row_in(&["default", "gleanerd", "haltpoll:200us"], "redis-8", &numbers);
        row.co_runners.push("another".to_owned());
        assert_eq!(
            RowReport::new(&row).unwrap().missed.unwrap(),
            ["gleanerd 0.750 of best static, not 0.95"]
        );
    }
}
