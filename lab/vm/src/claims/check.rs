//! Checks: sentences that hold or not, and estimates compared with a target.

use gleaner_bench::stats::{self, Estimate};
use gleaner_print::say;
use serde::{Deserialize, Serialize};

/// One sentence that holds or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The sentence, including the machine that it is about.
    pub what: String,
    /// Whether it holds.
    pub holds: bool,
    /// What was found.
    pub found: String,
    /// The estimate, if something was measured.
    pub measured: Option<Estimate>,
    /// The target of `measured`.
    pub target: Option<Target>,
}

/// The target of a measured value. The median decides, since under emulation the spread is the machine's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The median is at least this.
    AtLeast(f64),
    /// The median is at most this.
    AtMost(f64),
    /// The median lies between these.
    Within(f64, f64),
    /// No target: reported only.
    Reported,
}

impl Target {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
            Self::Within(least, most) => (least..=most).contains(&value),
            Self::Reported => true,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
            Self::Within(least, most) => write!(f, "{least:.1} to {most:.1}"),
            Self::Reported => f.write_str("reported"),
        }
    }
}

/// The checks of a claim so far.
#[derive(Debug)]
pub struct Checks {
    claim: String,
    all: Vec<Check>,
}

impl Checks {
    /// Of the claim with this name; none yet.
    pub fn of(claim: &str) -> Self {
        Self { claim: claim.to_owned(), all: Vec::new() }
    }

    /// Adds a sentence, whether it holds, and what was found.
    pub fn that(&mut self, what: impl Into<String>, holds: bool, found: impl Into<String>) {
        self.add(Check { what: what.into(), holds, found: found.into(), measured: None, target: None });
    }

    /// Adds a sentence that holds if two values are equal.
    pub fn equal<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: impl Into<String>,
        found: &T,
        expected: &T,
    ) {
        let holds = found == expected;
        let found = if holds { format!("{found:?}") } else { format!("{found:?}, not {expected:?}") };
        self.that(what, holds, found);
    }

    /// Adds ratios of one interleaved run, with their pseudo-median and its interval; `unit` is `×` for ratios.
    pub fn ratios(&mut self, what: impl Into<String>, ratios: &[f64], unit: &str, target: Target) {
        self.measured(what.into(), stats::ratio(ratios), unit, target);
    }

    /// Adds values, with their median and its interval.
    pub fn values(&mut self, what: impl Into<String>, values: &[f64], unit: &str, target: Target) {
        self.measured(what.into(), stats::estimate(values), unit, target);
    }

    fn measured(&mut self, what: String, estimate: Option<Estimate>, unit: &str, target: Target) {
        let found = estimate.map_or("nothing was measured".to_owned(), |e| {
            format!("{:.2} {unit} [{:.2}, {:.2}], n = {}", e.median, e.low, e.high, e.n)
        });
        let holds = estimate.is_some_and(|e| target.holds(e.median));
        self.add(Check { what, holds, found, measured: estimate, target: Some(target) });
    }

    /// Adds a check that was made elsewhere.
    pub fn add(&mut self, check: Check) {
        let sign = if check.holds { "holds" } else { "FAILS" };
        say!("lab: {}: {sign}: {}: {}", self.claim, check.what, check.found);
        self.all.push(check);
    }

    /// The checks, in the order in which they were added.
    pub fn into_inner(self) -> Vec<Check> {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_held_against_the_target() {
        let mut checks = Checks::of("claim");
        let ratios = [1.4, 1.5, 1.6, 1.5, 1.7, 1.5];
        checks.ratios("faster", &ratios, "×", Target::AtLeast(1.5));
        checks.ratios("much faster", &ratios, "×", Target::AtLeast(2.0));
        checks.ratios("not measured", &[], "×", Target::Reported);
        checks.equal("same", &1, &2);
        let all = checks.into_inner();
        assert_eq!(all.iter().map(|check| check.holds).collect::<Vec<_>>(), [true, false, false, false]);
        assert!(
            all[0].found.starts_with("1.50 × [1.4") && all[0].found.ends_with("n = 6"),
            "{}",
            all[0].found
        );
        assert_eq!(all[3].found, "1, not 2");
    }
}
