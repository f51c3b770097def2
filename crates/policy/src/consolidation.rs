//! Consolidation (imbalanced scheduling): how many vCPUs a workload needs. Paper §5.
//!
//! The strategy `paper` (`paper.rs`) implements §5 to the letter and documents how its sentences are read. This
//! one shares its two conditions, factors and major changes, but replaces §5's roll-back on a utilisation
//! decrease by the guard's findings, which measure progress itself. While every vCPU is active and nothing was
//! rolled back, no set has been found yet: the conditions are evaluated in every period.
//!
//! # Beyond the paper
//! §5 removes one vCPU at a time. Here the conditions say how few vCPUs the load fits on, the first trial goes
//! there, and the guard's findings narrow the search to the best set (module `search`). The factors are
//! adjusted where §5 does it: when the consolidation stops. Until then the search's bounds keep it from
//! repeating a failed step.
//!
//! Read to the letter, §5 oscillates for a load that keeps a vCPU above the ceiling on the smaller set without
//! being slower there: consolidate, expand, consolidate. A closed loop on one vCPU is 100 % busy *because* it
//! is fast. [`Consolidation::approve`] lets the guard accept such a set, and [`Consolidation::reject`] lets it
//! refute one whose utilisation seemed fine.

mod conditions;
mod major_change;
mod measurement;
mod search;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use conditions::{Check, Conditions, ConfigError, ConsolidationConfig, Factor};
pub(crate) use conditions::{Factors, OVERLOADED, conditions};
pub use major_change::MajorChange;
pub use measurement::Measurement;
pub(crate) use measurement::scale;
pub(crate) use search::Finding;

use conditions::{conditions_for, fewest};
use search::Search;

/// With fewer switches than this in each of two periods there is no granularity to compare: on one vCPU a
/// program might never have to wait.
const MIN_SWITCHES: u64 = 10;

/// What to do with the set of active vCPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Advice {
    /// Keep it.
    Keep,
    /// Reduce the set to `to` vCPUs: both conditions hold for that, or an earlier reduction paid.
    Consolidate {
        /// The size of the reduced set.
        to: usize,
        /// The conditions' numbers.
        conditions: Conditions,
    },
    /// The workload changed: activate every vCPU and start over.
    RestoreAll(MajorChange),
}

/// The consequence of a roll-back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterRollBack {
    /// The consolidation stops, and a factor shrinks so that the same measurement cannot justify it again.
    Adjusted(Factor),
    /// The search continues among sets of more than `above` and fewer than `below` vCPUs.
    GoesOn {
        /// The largest size known to be too small.
        above: usize,
        /// The smallest size known to gain nothing, or the present size.
        below: usize,
    },
}

/// Why the last consolidation was undone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refutation {
    /// Total utilisation fell, in vCPUs.
    Slower {
        /// Total utilisation before the reduction.
        from: f64,
        /// Total utilisation after it.
        to: f64,
    },
    /// The guard measured no gain in progress.
    Guard,
}

impl fmt::Display for AfterRollBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adjusted(factor) => factor.fmt(f),
            Self::GoesOn { above, below } => {
                write!(f, "sets of more than {above} and fewer than {below} vCPUs are left to try")
            }
        }
    }
}

impl fmt::Display for Refutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slower { from, to } => write!(f, "utilisation fell from {from:.2} to {to:.2} vCPUs"),
            Self::Guard => f.write_str("the guard measured no more progress"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Reducing the set while the conditions hold.
    Consolidating,
    /// After a roll-back or an approval: the next period becomes the baseline.
    Stopped,
    /// Keeping the set until a major change against `baseline`.
    Settled { baseline: Measurement },
}

/// A step to a smaller set.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Removal {
    /// The measurement that justified it.
    by: Measurement,
    /// The number of vCPUs left active.
    to: usize,
    /// The fewest vCPUs that the load fitted on.
    least: usize,
}

/// The state machine of §5. It only advises: [`Measurement::active`] of the next measurement reports what the
/// caller really did.
#[derive(Debug, Clone)]
pub(crate) struct Consolidation {
    config: ConsolidationConfig,
    all: usize,
    factors: Factors,
    phase: Phase,
    /// The reductions in force, oldest first.
    justified: Vec<Removal>,
    /// How many of them, from the oldest, the guard measured to be better.
    proven: usize,
    search: Search,
    /// Whether a vCPU was 100 % busy in the latest period.
    overloaded: bool,
}

impl Consolidation {
    /// For a workload that is allowed to use `all` vCPUs; fails if a setting is out of range.
    pub(crate) fn new(config: ConsolidationConfig, all: usize) -> Result<Self, ConfigError> {
        let factors = config.factors()?;
        Ok(Self {
            config,
            all,
            factors,
            phase: Phase::Consolidating,
            justified: Vec::new(),
            search: Search::new(),
            overloaded: false,
            proven: 0,
        })
    }

    /// Advises on the set after one period's measurement. `lighter`, where known, is this or a recent
    /// measurement less the cost of waking idle vCPUs: during the search a step that only it justifies is also
    /// worth a trial.
    pub(crate) fn step(&mut self, m: &Measurement, lighter: Option<&Measurement>) -> Advice {
        // A caller that did not carry out a step has nothing to roll back.
        self.justified.retain(|step| step.to >= m.active);
        self.proven = self.proven.min(self.justified.len());
        self.overloaded = m.max_utilization >= OVERLOADED;
        match self.phase {
            Phase::Consolidating => self.consolidate(m, lighter),
            Phase::Stopped => {
                self.phase = Phase::Settled { baseline: *m };
                Advice::Keep
            }
            Phase::Settled { baseline } => match self.major_change(&baseline, m) {
                Some(change) => {
                    self.start_over();
                    Advice::RestoreAll(change)
                }
                None => Advice::Keep,
            },
        }
    }

    /// The guard measured that the present set, reduced as advised so far, is better (beyond the paper, see the
    /// module's text). Utilisation alone no longer rolls it back, and the consolidation continues from there; a
    /// settled set gets the next measurement as its baseline. A vCPU that is above the ceiling in that baseline
    /// is no major change.
    pub(crate) fn approve(&mut self) {
        self.proven = self.justified.len();
        self.search.proven();
        if self.phase != Phase::Consolidating {
            self.phase = Phase::Stopped;
        }
    }

    /// A step to `to` vCPUs that was proven before is in force again, by a measurement of all vCPUs.
    pub(crate) fn resume(&mut self, m: &Measurement, to: usize) {
        self.justified.push(Removal { by: *m, to, least: to });
        self.proven = self.justified.len();
        self.phase = Phase::Stopped;
    }

    /// The step advised last is not carried out.
    pub(crate) fn withdraw(&mut self) {
        self.justified.pop();
    }

    /// Something other than the workload changes the utilisation: the next measurement is the baseline.
    pub(crate) fn record_again(&mut self) {
        if matches!(self.phase, Phase::Settled { .. }) {
            self.phase = Phase::Stopped;
        }
    }

    /// The guard did not find the last step better: undo it; `None` if no step is in force. A new step narrows
    /// the search; if nothing is left to try, or the step had been proven before, the consolidation stops as
    /// after a utilisation decrease.
    pub(crate) fn reject(&mut self, finding: Finding) -> Option<AfterRollBack> {
        let new = self.phase == Phase::Consolidating && !self.is_proven();
        let last = self.justified.pop()?;
        if new {
            self.search.refuted(last.to, finding);
            if self.search.next(last.by.active, last.least).is_some() {
                let (above, below) = self.search.bounds(last.by.active);
                return Some(AfterRollBack::GoesOn { above, below });
            }
        }
        let adjusted = self.factors.shrink(&last.by, self.overloaded);
        self.phase = Phase::Stopped;
        self.search = Search::new();
        self.proven = self.proven.min(self.justified.len());
        Some(AfterRollBack::Adjusted(adjusted))
    }

    /// Whether a search has started and has not ended.
    pub(crate) fn is_searching(&self) -> bool {
        self.phase == Phase::Consolidating && (self.proven > 0 || self.search != Search::new())
    }

    /// The size that [`Consolidation::step`] would advise now, without taking the step; `None` to keep the
    /// present one.
    pub(crate) fn next_size(&self, m: &Measurement, lighter: Option<&Measurement>) -> Option<usize> {
        let consolidating = self.phase == Phase::Consolidating;
        consolidating.then(|| self.removal(m, lighter)).flatten().map(|step| step.to)
    }

    /// What the guard refuted has counted for long enough: searches again, while every vCPU is active.
    pub(crate) fn search_again(&mut self) {
        if self.phase != Phase::Consolidating {
            self.reset();
        }
    }

    /// Resets everything, the factors included. For a new workload and after a major change, since the factors
    /// were learned from the old one. Every vCPU must be active again.
    pub(crate) fn reset(&mut self) {
        self.start_over();
        // `new` has validated the configuration, so these are always `Ok`.
        self.factors = self.config.factors().unwrap_or_default();
    }

    fn consolidate(&mut self, m: &Measurement, lighter: Option<&Measurement>) -> Advice {
        if let Some(step) = self.removal(m, lighter) {
            self.justified.push(step);
            let conditions = conditions_for(step.to, &step.by, &self.factors, &self.config);
            return Advice::Consolidate { to: step.to, conditions };
        }
        if m.active < self.all {
            self.phase = Phase::Settled { baseline: *m };
        }
        Advice::Keep
    }

    /// The next step of the search, justified by `m` if possible, else by `lighter`.
    ///
    /// Where a reduction paid, the wake-ups that it avoided had cost CPU time, and much of the remaining load
    /// can be wake-ups, too: half of the set is worth a trial even if the measured load does not fit there.
    fn removal(&self, m: &Measurement, lighter: Option<&Measurement>) -> Option<Removal> {
        let lighter = lighter.filter(|lighter| lighter.active == m.active);
        let fewest = |by: &Measurement| fewest(by, &self.factors, &self.config);
        let (present, light) = (fewest(m), lighter.and_then(fewest));
        let paid = !self.justified.is_empty() && self.is_proven();
        let fine = m.g_comp().is_some_and(|g_comp| g_comp <= self.config.min_time_slice);
        let half = (paid && fine && m.active > 1).then_some(m.active / 2);
        let least = [present, light, half].into_iter().flatten().min()?;
        let to = self.search.next(m.active, least)?;
        let lightest = light.is_some_and(|fewest| fewest <= to) && present.is_none_or(|fewest| fewest > to);
        Some(Removal { by: lighter.filter(|_| lightest).copied().unwrap_or(*m), to, least })
    }

    /// Whether the guard approved the present set.
    fn is_proven(&self) -> bool {
        self.proven == self.justified.len()
    }

    fn start_over(&mut self) {
        self.phase = Phase::Consolidating;
        self.justified.clear();
        self.search = Search::new();
        self.overloaded = false;
        self.proven = 0;
    }

    fn major_change(&self, base: &Measurement, m: &Measurement) -> Option<MajorChange> {
        let config = &self.config;
        let proven_busy = self.is_proven() && base.max_utilization > config.utilization_ceiling;
        MajorChange::utilization(base, m, config)
            .or_else(|| {
                let busy = m.active < self.all && !proven_busy;
                busy.then(|| MajorChange::saturated(m, config)).flatten()
            })
            .or_else(|| {
                let many = base.s_work.max(m.s_work) >= MIN_SWITCHES;
                many.then(|| MajorChange::granularity(base, m, config)).flatten()
            })
    }
}
