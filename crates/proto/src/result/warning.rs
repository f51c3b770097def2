//! The caveats of a result, typed, each with its remedy.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Metric;

/// A caveat. Its [`fmt::Display`] is a sentence with the remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "warning", rename_all = "kebab-case")]
pub enum Warning {
    /// There was steal time during the measurement.
    Steal {
        /// Name of the row.
        row: String,
        /// Name of the mode.
        mode: String,
        /// The largest share of all vCPUs' time in one sample, 0..=1.
        share: f64,
        /// The round of that sample, from 0.
        round: usize,
    },
    /// The CPUs' clock frequency changed during the run.
    Frequency {
        /// Lowest frequency seen, in MHz.
        min_mhz: f64,
        /// Highest frequency seen, in MHz.
        max_mhz: f64,
    },
    /// Other programs in this VM used CPU time.
    Neighbours {
        /// Name of the row.
        row: String,
        /// Name of the mode.
        mode: String,
        /// The largest share of all vCPUs' time in one sample, 0..=1.
        share: f64,
        /// The round of that sample, from 0.
        round: usize,
    },
    /// Too few rounds for a meaningful interval.
    TooFewRounds {
        /// Name of the row.
        row: String,
        /// Number of rounds measured.
        rounds: usize,
        /// Number of rounds needed.
        needed: usize,
    },
    /// The interval did not become as narrow as requested.
    Imprecise {
        /// Name of the row.
        row: String,
        /// The mode with the widest interval.
        mode: String,
        /// The width of its interval as a share of its median.
        width: f64,
        /// The width requested.
        asked: f64,
        /// Number of rounds measured.
        rounds: usize,
    },
    /// A mode's values rise or fall from round to round.
    Drift {
        /// Name of the row.
        row: String,
        /// Name of the mode.
        mode: String,
        /// The drifting metric.
        metric: Metric,
        /// Change from the first to the last round, as a share of the median; negative if it falls.
        change: f64,
    },
    /// Some values are far from the others. They are included in every number.
    Outliers {
        /// Name of the row.
        row: String,
        /// Name of the mode.
        mode: String,
        /// The metric with outliers.
        metric: Metric,
        /// Rounds with outliers, from 0.
        rounds: Vec<usize>,
    },
    /// Gleaner could not hold a fixed setting.
    NotInForce {
        /// Name of the row.
        row: String,
        /// Name of the mode.
        mode: String,
        /// The round, from 0.
        round: usize,
        /// The reason, as part of a sentence.
        why: String,
    },
    /// A metric could not be measured.
    NotMeasured {
        /// The missing metric.
        metric: Metric,
        /// The reason, as part of a sentence.
        why: String,
    },
}

impl Warning {
    /// Name of the row that it is about; `None` if it is about all of them.
    pub fn row(&self) -> Option<&str> {
        match self {
            Self::Steal { row, .. }
            | Self::Neighbours { row, .. }
            | Self::TooFewRounds { row, .. }
            | Self::Imprecise { row, .. }
            | Self::Drift { row, .. }
            | Self::Outliers { row, .. }
            | Self::NotInForce { row, .. } => Some(row),
            Self::Frequency { .. } | Self::NotMeasured { .. } => None,
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: &f64| share * 100.0;
        match self {
            Self::Steal { row, mode, share, round } => write!(
                f,
                "{row}, {mode}: in round {} the host gave {:.1} % of the vCPUs' time to others; repeat it when the \
                 host is quieter, or with more rounds",
                round + 1,
                percent(share)
            ),
            Self::Frequency { min_mhz, max_mhz } => write!(
                f,
                "the CPUs' frequency moved between {min_mhz:.0} and {max_mhz:.0} MHz; fix it on the host (governor \
                 `performance`, no turbo), or trust only the paired ratios"
            ),
            Self::Neighbours { row, mode, share, round } => write!(
                f,
                "{row}, {mode}: in round {} other programs of this machine used {:.1} % of the vCPUs' time; stop \
                 them and repeat",
                round + 1,
                percent(share)
            ),
            Self::TooFewRounds { row, rounds, needed } => write!(
                f,
                "{row}: {rounds} {} too few for a 95 % interval; run at least {needed} (`--rounds {needed}`)",
                if *rounds == 1 { "round is" } else { "rounds are" }
            ),
            Self::Imprecise { row, mode, width, asked, rounds } => write!(
                f,
                "{row}, {mode}: after {rounds} rounds the interval is {:.1} % wide, not {:.1} %; allow more rounds, \
                 a longer window, or a quieter machine",
                percent(width),
                percent(asked)
            ),
            Self::Drift { row, mode, metric, change } => write!(
                f,
                "{row}, {mode}: {} drifts by {:+.1} % from the first round to the last; let the machine warm up \
                 first (`warmup_rounds`), and trust only the paired ratios",
                metric.about(),
                percent(change)
            ),
            Self::Outliers { row, mode, metric, rounds } => {
                let rounds: Vec<String> = rounds.iter().map(|round| (round + 1).to_string()).collect();
                write!(
                    f,
                    "{row}, {mode}: {} lies far from the others in round {}; they are kept in every number; find \
                     out what else happened then, or run more rounds",
                    metric.about(),
                    rounds.join(", ")
                )
            }
            Self::NotInForce { row, mode, round, why } => write!(
                f,
                "{row}, {mode}: in round {} the setting was not in force all the time ({why}): these samples do not \
                 show what it can do; `gleaner doctor` says what works here",
                round + 1
            ),
            Self::NotMeasured { metric, why } => write!(f, "{} is not measured: {why}", metric.about()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_name_the_place_and_the_remedy() {
        let steal = Warning::Steal { row: "r".into(), mode: "default".into(), share: 0.125, round: 2 };
        let text = steal.to_string();
        assert!(text.starts_with("r, default: in round 3 the host gave 12.5 %") && text.contains("repeat"));
        let json = serde_json::to_value(&steal).unwrap();
        assert_eq!(json["warning"], "steal");
        assert_eq!(serde_json::from_value::<Warning>(json).unwrap(), steal);
    }
}
