//! A policy among those of other workloads on the same machine, see [`crate::Arbiter`].

use super::{
    BTreeMap, CpuId, CpuSet, Difference, Duration, Event, Method, Mode, Observation, Policy, Purpose,
    ReleaseReason, Retention, Setting, Trial, Veto,
};
use crate::backoff::Backoff;
use crate::evidence::ERROR_RATE;
use crate::guard::block_of;
use crate::objective::{Comparison, Standard};
use crate::progress::Block;
use crate::{Evidence, WorkloadId};

/// A trial of another workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtherTrial {
    pub(crate) purpose: Purpose,
    pub(crate) difference: Difference,
}

/// What the other workloads make of retention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Judgement {
    /// Some have not judged it yet.
    Open,
    /// The blocks of the trial have proven to this one, which it helped before, that it does still.
    Confirmed(WorkloadId, Evidence),
    /// All have judged it, and allow it.
    Allowed,
}

/// What the other workloads on the machine leave to this one at one step. By default there are none.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// The machine's retention in the interval observed; `None` if it is this workload's own.
    pub(crate) in_force: Option<Retention>,
    /// What is retained for the sake of others.
    pub(crate) elsewhere: Retention,
    /// The trial of another workload that is under way. Until it ends this one starts none, and keeps its setting
    /// unless it has to react.
    pub(crate) other: Option<OtherTrial>,
    /// The time until that trial's next block ends.
    pub(crate) block: Duration,
    /// Whether it is this workload's turn to start a trial.
    pub(crate) may_try: bool,
    /// Whether the others allow retention.
    pub(crate) may_retain: bool,
    /// What the others make of the retention on trial or, without a trial, in force.
    pub(crate) judgement: Judgement,
    /// CPU time that the others' observations take for each block of a trial of retention.
    pub(crate) judging_cost: Duration,
    /// The load (in vCPUs) of others that is confined to a vCPU.
    pub(crate) confined: BTreeMap<CpuId, f64>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            in_force: None,
            elsewhere: Retention::NONE,
            other: None,
            block: Duration::ZERO,
            may_try: true,
            may_retain: true,
            judgement: Judgement::Allowed,
            judging_cost: Duration::ZERO,
            confined: BTreeMap::new(),
        }
    }
}

impl Terms {
    /// Whether some of the others have not judged the retention yet.
    pub(super) fn is_open(&self) -> bool {
        self.judgement == Judgement::Open
    }
}

impl Policy {
    /// Starts a step under `terms`; returns the setting that was in force until now.
    pub(super) fn enter(&mut self, terms: Terms) -> Setting {
        let Setting { active, retention } = self.setting();
        self.waits = false;
        self.terms = terms;
        Setting { active, retention: self.terms.in_force.unwrap_or(retention) }
    }

    /// The retention in force outside trials.
    pub(super) fn retained(&self) -> Retention {
        self.retention.stronger(self.terms.elsewhere)
    }

    /// Whether a trial of another workload changes the retention, so that its blocks show what this one makes of it.
    pub(super) fn judges(&self) -> bool {
        self.terms.other.is_some_and(|trial| trial.difference == Difference::Retention)
    }

    /// Whether the retention or set in force is just proving itself.
    pub(super) fn is_proof(&self) -> bool {
        let own = self.trial.as_ref().map(Trial::purpose);
        let others = self.terms.other.filter(|_| self.judges()).map(|trial| trial.purpose);
        own.or(others) == Some(Purpose::Reprove)
    }

    /// Whether it would start a trial or change its setting now, if no other trial were under way.
    pub(super) fn would_act(&self, o: &Observation) -> bool {
        let mut probe = self.clone();
        (probe.terms.other, probe.terms.may_try) = (None, false);
        probe.hold(o, &mut Vec::new());
        probe.waits || probe.setting() != self.setting()
    }

    /// Has other workloads judge a new trial, if it is one of retention.
    pub(super) fn with_judges(&self, trial: Trial) -> Trial {
        match trial.difference() {
            Difference::Retention => trial.with_judges(self.terms.judging_cost, self.terms.is_open()),
            Difference::ActiveSet => trial,
        }
    }

    /// Whether a load of `load` vCPUs fits on the set beside what others have confined there.
    pub(super) fn fits(&self, set: &CpuSet, load: f64) -> bool {
        let share = load / set.len().max(1) as f64;
        set.iter().filter_map(|cpu| self.terms.confined.get(&cpu)).all(|others| others + share <= 1.0)
    }

    /// Ends retention that the workload needs or tries, without a verdict; returns whether there was any.
    pub(crate) fn end_polling(&mut self, why: ReleaseReason, now: Duration, events: &mut Vec<Event>) -> bool {
        let tried = self.trial.as_ref().is_some_and(|t| t.candidate().retention.is_on());
        if !self.retention.is_on() && !tried {
            return false;
        }
        self.trial = None;
        let retention = std::mem::replace(&mut self.retention, Retention::NONE);
        if !why.is_passing() {
            self.memory.distrust();
        } else if retention.is_on() {
            self.memory.interrupted(retention, now);
        }
        events.push(Event::Released { why });
        true
    }

    /// The retention method that it uses.
    pub(crate) fn method(&self) -> Method {
        self.config.method
    }

    /// The retention that this workload needs, outside trials.
    pub(crate) fn claim(&self) -> Retention {
        self.retention
    }

    /// The trial under way.
    pub(crate) fn trial(&self) -> Option<&Trial> {
        self.trial.as_ref()
    }

    /// Whether it has something to try, and was not allowed to at the latest step.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether a search for a smaller set is under way.
    pub(crate) fn is_in_search(&self) -> bool {
        self.consolidation.is_searching()
    }

    /// The active vCPUs outside trials, if they are not all that are allowed.
    pub(crate) fn smaller_set(&self) -> Option<CpuSet> {
        (!self.inactive.is_empty()).then(|| self.active())
    }

    /// Steal that polling vCPUs met at the latest step.
    pub(crate) fn contention(&self) -> Option<Veto> {
        self.vetoed.filter(|veto| matches!(veto, Veto::Steal { .. }) && self.veto.is_closed())
    }

    /// Whether the steal that it met keeps all workloads from polling.
    pub(crate) fn bars_polling(&self, now: Duration) -> bool {
        let stolen = matches!(self.vetoed, Some(Veto::Steal { .. }));
        stolen && (self.veto.is_closed() || !self.after_veto.is_over(now))
    }

    /// When it would try retention again.
    pub(crate) fn retry_at(&self) -> Duration {
        self.retry_retention.until()
    }

    /// Proves the retention in force soon, before anything else.
    pub(crate) fn prove_retention_soon(&mut self, now: Duration) {
        self.prove_soon(now);
        self.proved_set = true;
    }

    /// What an observation shows of the workload, as a block of another workload's trial.
    pub(crate) fn block(&self, o: &Observation) -> Block {
        block_of(o, &self.setting().active, self.config.waker_cost)
    }

    /// Compares blocks of another workload's trial of retention.
    pub(crate) fn compare(&self, pairs: &[(Block, Block)]) -> Comparison {
        let error = ERROR_RATE * self.retry_retention.error_share();
        let standard = Standard { poll_price: self.config.poll_price, error };
        Comparison::of(pairs, Difference::Retention, &self.noise, standard)
    }

    /// Books a judge's CPU time for an observation in the trial under way.
    pub(crate) fn add_sampled(&mut self, cost: Duration) {
        if let Some(trial) = &mut self.trial {
            trial.add_sampled(cost);
        }
    }

    /// When it will prove again what is in force.
    pub(crate) fn proof(&self) -> Backoff {
        self.proof
    }

    /// Another workload has just proven the retention in force, which counts until its next `proof`.
    pub(crate) fn spare_proof(&mut self, proof: &Backoff) {
        self.proof.follow(proof);
    }

    /// Another workload's trial proved `retention` for this one, too, under its present `load`. It needs no longer limit
    /// than it would have tried itself.
    pub(crate) fn helped(&mut self, retention: Retention, load: f64, evidence: Evidence, now: Duration) {
        if self.config.mode != Mode::Adaptive || self.config.method == Method::Halt {
            return;
        }
        if !self.retention.is_on() {
            let limit = retention.limit.min(self.costs_at_load(load).bound());
            self.retention = Retention { limit, ..retention };
        }
        self.memory.kept(self.retention, Some(evidence));
        self.retry_retention.shorten(now);
    }

    /// Another workload's trial refuted `retention`, which is not in force any more, for this one, at a cost of `lost`.
    pub(crate) fn harmed(&mut self, retention: Retention, lost: Duration, now: Duration) {
        self.memory.dropped(retention, false, true, now);
        self.retry_retention.extend(now);
        self.charge(lost, now);
    }

    /// Another workload's trial of retention has `lost` this much of the workload's time.
    pub(crate) fn charge(&mut self, lost: Duration, now: Duration) {
        let paid = self.budget.spend(lost, now);
        self.retry_retention.not_before(paid);
    }

    /// Activates all vCPUs, since a vCPU of the smaller set is used up by the `load` of several workloads.
    pub(crate) fn make_room(&mut self, cpu: CpuId, load: f64, now: Duration, events: &mut Vec<Event>) {
        events.push(Event::MadeRoom { cpu, load, active: self.active() });
        self.restore_all(now, events);
        self.retry_consolidation.extend(now);
    }

    /// Leaves the machine: what is in force there is not this workload's matter any more.
    pub(crate) fn retire(&mut self, now: Duration) {
        self.abandon_trial(now);
        if self.retention.is_on() {
            self.memory.interrupted(self.retention, now);
        }
        self.retention = Retention::NONE;
        self.terms = Terms::default();
    }
}
