//! The strategy `paper`: ATC'14 §4 to §6 to the letter. No guard, no search, no veto, no trial: it does what
//! the rules say and does not measure whether that pays.
//!
//! # How the paper's sentences are read
//! - *Retention and consolidation together* (§5): retention is in force on every active vCPU from the start to
//!   the end. It uses yield threads (§6) unless the user names another method. Its *time-out follows the cost
//!   of the transitions* (§6): the measured cost of halting and being woken.
//! - *Periodically* (§5): every 100 ms (the paper leaves it open), or less often where a sample costs more than
//!   1 % of that. A shorter interval, such as the engine's first one, is not a period and decides nothing.
//! - *`l_comp`, `g_comp`, `l_idle`* (§6): `T_work`/`S_yield`, `T_work`/`S_work` and `T_idle`/`S_yield`, summed
//!   over the active vCPUs ([`Measurement`]). Idle time is spent in yield threads and in halts: §6 halts after
//!   the time-out.
//! - *Utilisation of the workload* (§5): `T_work` per active vCPU. That of a single vCPU is its time that is
//!   neither idle nor stolen: which thread ran where is not sampled.
//! - *One at a time* (§5): the active vCPU with the highest number; the paper names no order.
//! - *During the consolidation* (§5): from the first step until the set is found. The period after each step is
//!   compared with the one that justified it.
//! - *A utilisation decrease* (§5): of the **total** over the active vCPUs. The mean rises by N/(N−1) when the
//!   same work is done on one vCPU fewer, so a decrease of the mean would miss every slow-down smaller than
//!   1/N. It counts from 5 % on ([`ConsolidationConfig::drop_tolerance`](crate::ConsolidationConfig)); the
//!   paper names no margin.
//! - *Increases the utilisation of a vCPU to 100 %* (§5): a vCPU reaches it that was below it before the step.
//! - *The factors' adjustment* (§5) uses the lengths and N that justified the step: only then does it *prevent*
//!   the same one. The paper never lets a factor grow again, not even after a major change.
//! - *Maintains the current set* (§5): from the period in which the conditions no longer hold for a smaller
//!   set, or the one after a roll-back; that period is the baseline. While every vCPU is active and nothing was
//!   rolled back, there is no set to maintain: the conditions are evaluated in every period.
//! - *A change of utilisation larger than 20 %* (§5): points of the mean, against the baseline.
//! - *Per-vCPU utilisation exceeding 90 %* (§5): only while vCPUs are inactive; else there is nothing to
//!   activate.
//!
//! A closed loop is 100 % busy on one vCPU *because* it is fast there, which §5 takes for a major change: it
//! oscillates between both sets. That is true to the paper.

mod sample;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::sample::Sample;
use crate::consolidation::{Factors, OVERLOADED, conditions};
use crate::{
    AfterRollBack, ConfigError, CpuId, CpuSet, Decision, Event, MajorChange, Measurement, Method,
    Observation, PolicyConfig, Refutation, Retention, Setting,
};

/// The period of §5's measurements.
const PERIOD: Duration = Duration::from_millis(100);
/// The period is at least this many times the cost of a sample.
const MIN_PERIODS_PER_COST: u32 = 100;
/// The period's upper bound, however expensive a sample is.
const LONGEST_PERIOD: Duration = Duration::from_secs(10);

/// The strategy and its state.
#[derive(Debug, Clone)]
pub struct Paper {
    config: PolicyConfig,
    /// The vCPUs that the workload is allowed to use.
    allowed: CpuSet,
    /// ρ and η as adjusted so far.
    factors: Factors,
    /// The steps in force, oldest first.
    removals: Vec<Removal>,
    phase: Phase,
}

/// An inactive vCPU, and the measurement before that step.
#[derive(Debug, Clone)]
struct Removal {
    cpu: CpuId,
    before: Sample,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Removing vCPUs from the active set while the conditions hold.
    Consolidating,
    /// After a roll-back: the next period is the baseline.
    Stopped,
    /// Maintaining a set until a major change against `baseline`.
    Settled { baseline: Measurement },
}

impl Paper {
    /// The strategy for a workload that is allowed to use the vCPUs `allowed`.
    ///
    /// # Errors
    /// The settings of the consolidation are out of range.
    pub fn new(config: PolicyConfig, allowed: CpuSet) -> Result<Self, ConfigError> {
        let factors = config.consolidation.factors()?;
        Ok(Self { config, allowed, factors, removals: Vec::new(), phase: Phase::Consolidating })
    }

    /// The setting in force now.
    pub fn setting(&self) -> Setting {
        let method = self.config.method;
        let limit = match method {
            Method::Halt | Method::QosPoll => Duration::ZERO,
            _ => self.config.wake_cost,
        };
        Setting { active: self.active(), retention: Retention { method, limit } }
    }

    /// Takes one observation and decides what to do until the next.
    pub fn step(&mut self, o: &Observation) -> Decision {
        let mut events = Vec::new();
        if !self.update_allowed(o, &mut events) && o.period >= PERIOD / 2 {
            let sample = Sample::of(o, &self.active());
            let can_consolidate = self.config.consolidate && o.workload.threads <= self.config.most_threads;
            match self.phase {
                Phase::Consolidating => events.extend(self.consolidate(sample, can_consolidate)),
                Phase::Stopped => self.phase = Phase::Settled { baseline: sample.measured },
                Phase::Settled { baseline } => events.extend(self.maintain(&baseline, &sample.measured)),
            }
        }
        let next = PERIOD.max(o.cost.saturating_mul(MIN_PERIODS_PER_COST)).min(LONGEST_PERIOD);
        Decision { setting: self.setting(), next, events, ..Decision::default() }
    }

    fn active(&self) -> CpuSet {
        let inactive: CpuSet = self.removals.iter().map(|removal| removal.cpu).collect();
        self.allowed.difference(&inactive)
    }

    /// A changed set of allowed vCPUs is another machine: activate all of them. Returns whether it changed.
    fn update_allowed(&mut self, o: &Observation, events: &mut Vec<Event>) -> bool {
        let now = o.allowed();
        if now == self.allowed || now.is_empty() {
            return false;
        }
        let from = std::mem::replace(&mut self.allowed, now);
        events.push(Event::AllowedChanged { from, to: self.allowed.clone() });
        self.start_over();
        true
    }

    fn start_over(&mut self) {
        self.removals.clear();
        self.phase = Phase::Consolidating;
    }

    /// Judges the last step, and takes the next one while the conditions hold. `can_consolidate` says whether
    /// this workload can be consolidated at all.
    fn consolidate(&mut self, sample: Sample, can_consolidate: bool) -> Option<Event> {
        if let Some(rolled_back) = self.judge_last(&sample) {
            return Some(rolled_back);
        }
        let conditions = conditions(&sample.measured, &self.factors, &self.config.consolidation);
        let active = self.active();
        let last =
            active.iter().next_back().filter(|_| can_consolidate && active.len() > 1 && conditions.hold());
        if let Some(cpu) = last {
            self.removals.push(Removal { cpu, before: sample });
            return Some(Event::Consolidated { cpu, active: self.active(), conditions });
        }
        if !self.removals.is_empty() {
            self.phase = Phase::Settled { baseline: sample.measured };
        }
        None
    }

    /// Rolls the last step back if it slowed the workload down: its total utilisation fell.
    fn judge_last(&mut self, after: &Sample) -> Option<Event> {
        let before = &self.removals.last()?.before;
        let (from, to) = (before.measured.total_utilization(), after.measured.total_utilization());
        if to >= from * (1.0 - self.config.consolidation.drop_tolerance) {
            return None;
        }
        let overloaded = after.reached(OVERLOADED, before);
        let factor = self.factors.shrink(&before.measured, overloaded);
        self.removals.pop();
        self.phase = Phase::Stopped;
        Some(Event::RolledBack {
            active: self.active(),
            refutation: Refutation::Slower { from, to },
            then: AfterRollBack::Adjusted(factor),
        })
    }

    /// Keeps the set unless the workload changed: then every vCPU is active, and the search starts over.
    fn maintain(&mut self, baseline: &Measurement, now: &Measurement) -> Option<Event> {
        let config = &self.config.consolidation;
        let some_inactive = !self.removals.is_empty();
        let change = MajorChange::utilization(baseline, now, config)
            .or_else(|| some_inactive.then(|| MajorChange::saturated(now, config)).flatten())
            .or_else(|| MajorChange::granularity(baseline, now, config))?;
        self.start_over();
        some_inactive.then_some(Event::MajorChange { change })
    }
}
