//! The decision loop of the guest: combines retention, consolidation and the guard.
//!
//! [`Policy::step`] is the only entry point. A running trial decides; otherwise [`hold`](Policy::hold) keeps
//! what is proven, releases what cannot pay any more, and starts the next trial.

mod conclude;
mod expand;
mod hold;
mod shared;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use self::expand::OverloadState;
pub(crate) use self::shared::{Judgement, OtherTrial, Terms};
use crate::backoff::Backoff;
use crate::budget::Budget;
use crate::cadence::{Cadence, MIN_INTERVAL, STEADY_INTERVAL};
use crate::consolidation::Consolidation;
use crate::contention::Contention;
use crate::decision::{Decision, Event, ReleaseReason, Sense, TrialReason, Watch};
use crate::guard::{Purpose, Trial, Verdict, has_room};
use crate::idle_histogram::IdleHistogram;
use crate::memory::{Memory, RESUME_TIMEOUT};
use crate::noise::Noise;
use crate::objective::price_at_load;
use crate::progress::Difference;
use crate::retention::{LimitAdapter, RetentionCosts, VetoGate};
use crate::{
    AfterRollBack, ConfigError, CpuId, CpuSet, Learned, Measurement, Method, Mode, Observation, Paper,
    PolicyConfig, Retention, Setting, Veto,
};

/// First and longest time until a refuted hypothesis is tried again; doubles in between.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
/// First and longest time until a proven change is proven again; doubles in between. The longest is also how
/// late the guard notices a change of the workload that shows in no other way. A proof costs a block or two.
const PROOF_DELAY: (Duration, Duration) = (Duration::from_millis(150), Duration::from_secs(10));
/// First and longest time without polling after a veto; doubles in between: halting vCPUs cannot show that the
/// pCPUs are free again, and finding out takes up to half a second of polling.
const VETO_DELAY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// What is resumed is proven again after this long.
const RESUMED_PROOF_DELAY: Duration = Duration::from_millis(100);

/// The pure decision logic that the daemon, the simulator and the replayer drive.
#[derive(Debug, Clone)]
pub struct Policy {
    config: PolicyConfig,
    /// The strategy that decides instead under [`Mode::Paper`].
    paper: Option<Paper>,
    /// The vCPUs that the workload is allowed to use.
    allowed: CpuSet,
    /// The inactive vCPUs, step by step: each step was proven against the set before it.
    inactive: Vec<CpuSet>,
    /// The retention in force outside trials, as far as this workload's own needs go.
    retention: Retention,
    trial: Option<Trial>,
    consolidation: Consolidation,
    idle: BTreeMap<CpuId, IdleHistogram>,
    limit: LimitAdapter,
    noise: Noise,
    /// What has been seen of late outside trials; `None` before the first observation.
    usual: Option<hold::Usual>,
    budget: Budget,
    veto: VetoGate,
    after_veto: Backoff,
    /// Why polling was forbidden last.
    vetoed: Option<Veto>,
    contention: Contention,
    proof: Backoff,
    /// Whether the latest proof was of a smaller set.
    proved_set: bool,
    retry_retention: Backoff,
    retry_consolidation: Backoff,
    memory: Memory,
    /// §5's quantities without retention, from the trial that proved retention.
    unretained: Option<Measurement>,
    overload: OverloadState,
    cadence: Cadence,
    /// What the other workloads on the machine leave to this one, at the latest step.
    terms: Terms,
    /// Whether something was not tried at the latest step, since it was another workload's turn.
    waits: bool,
}

/// The memory of a run with this configuration on `vcpus` vCPUs. Modes that prove nothing do not use earlier
/// runs.
fn memory(config: &PolicyConfig, vcpus: usize) -> Memory {
    let known = if config.mode == Mode::Adaptive { config.known.as_slice() } else { &[] };
    Memory::new(known, vcpus, config.method, costs(config).bound())
}

fn costs(config: &PolicyConfig) -> RetentionCosts {
    RetentionCosts { wake_cost: config.wake_cost, poll_price: config.poll_price }
}

/// Whether a search for a set has just moved on to its next step.
fn continues_search(events: &[Event]) -> bool {
    let goes_on = |e: &Event| matches!(e, Event::RolledBack { then: AfterRollBack::GoesOn { .. }, .. });
    events.iter().any(goes_on)
}

impl Policy {
    /// A policy for a workload that is allowed to use the vCPUs `allowed`.
    ///
    /// # Errors
    /// The consolidation's settings are out of range.
    pub fn new(config: PolicyConfig, allowed: CpuSet) -> Result<Self, ConfigError> {
        Ok(Self {
            paper: match config.mode {
                Mode::Paper => Some(Paper::new(config.clone(), allowed.clone())?),
                _ => None,
            },
            consolidation: Consolidation::new(config.consolidation, allowed.len())?,
            memory: memory(&config, allowed.len()),
            allowed,
            inactive: Vec::new(),
            retention: Retention::NONE,
            trial: None,
            idle: BTreeMap::new(),
            limit: LimitAdapter::default(),
            noise: Noise::new(),
            usual: None,
            budget: Budget::new(),
            veto: VetoGate::default(),
            after_veto: Backoff::new(VETO_DELAY.0, VETO_DELAY.1),
            vetoed: None,
            contention: Contention::new(config.wake_cost),
            proof: Backoff::new(PROOF_DELAY.0, PROOF_DELAY.1),
            proved_set: false,
            retry_retention: Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1),
            retry_consolidation: Backoff::new(RETRY_DELAY.0, RETRY_DELAY.1),
            unretained: None,
            overload: OverloadState::new(),
            cadence: Cadence::new(),
            terms: Terms::default(),
            waits: false,
            config,
        })
    }

    /// The setting in force now.
    pub fn setting(&self) -> Setting {
        if let Some(paper) = &self.paper {
            return paper.setting();
        }
        match (&self.config.mode, &self.trial) {
            (Mode::Fixed(setting), _) => setting.clone(),
            (_, Some(trial)) => trial.setting().clone(),
            (_, None) => self.incumbent(),
        }
    }

    /// The setting held without proof, in [`Mode::Fixed`].
    pub fn fixed(&self) -> Option<&Setting> {
        match &self.config.mode {
            Mode::Fixed(setting) => Some(setting),
            Mode::Adaptive | Mode::DryRun | Mode::Paper => None,
        }
    }

    /// What later runs of the same program should know: what paid and what did not, by kind of load.
    pub fn learned(&self) -> Vec<Learned> {
        self.memory.learned(self.retention)
    }

    /// Takes one observation and decides what to do until the next.
    pub fn step(&mut self, o: &Observation) -> Decision {
        self.step_under(o, Terms::default())
    }

    /// The same among other workloads, see [`crate::Arbiter`].
    pub(crate) fn step_under(&mut self, o: &Observation, terms: Terms) -> Decision {
        if let Some(paper) = &mut self.paper {
            return paper.step(o);
        }
        if let Mode::Fixed(setting) = &self.config.mode {
            let next = self.cadence.next(o, false);
            let sense = Sense { waiting: true, traffic: true };
            return Decision { setting: setting.clone(), next, sense, ..Decision::default() };
        }
        let mut events = Vec::new();
        let in_force = self.enter(terms);
        self.learn(o, &in_force);
        self.note_usual(o);
        self.noise.observe(&in_force, o);
        self.memory.observe(o, &in_force, self.is_proof());
        let deferred = self.memory.has_deferred_trial();
        self.budget.earn(o.period);
        self.cadence.sampled(o, in_force == self.incumbent());
        self.update_allowed(o, &mut events);
        self.update_veto(o, in_force.retention, &mut events);
        if self.judges() && !in_force.retention.is_on() {
            self.unretained = Some(o.measurement(&in_force.active));
        }
        if !self.expand_under_overload(o, in_force.active.clone(), &mut events) {
            match self.trial.take() {
                Some(trial) => self.advance(trial, o, &mut events),
                None if self.terms.other.is_some() => {
                    self.waits = !self.recall_known(o, &mut events) && self.would_act(o);
                }
                None => self.hold(o, &mut events),
            }
        }
        let next = match &self.trial {
            Some(trial) => trial.next(),
            None if self.judges() => self.terms.block + STEADY_INTERVAL,
            // A few observations at any cost: a search continues, or knowledge of the load is about to be used.
            None if continues_search(&events) || self.memory.has_deferred_trial() != deferred => MIN_INTERVAL,
            None if self.overload.is_ending() => MIN_INTERVAL,
            None if self.memory.is_unproven() && !self.proof.is_over(o.at) => MIN_INTERVAL,
            None => self.cadence.next(o, !events.is_empty() || o.workload.incomplete),
        };
        let setting = self.setting();
        // What was refuted or released must not stay in effect.
        let ended = self.trial.is_none() && in_force.retention.is_on() && !setting.retention.is_on();
        let reset_poll_limits = ended && has_room(o.load(), &setting.active)
            || self.trial.as_mut().is_some_and(Trial::wants_reset);
        let judging = self.trial.is_some() || self.judges();
        let sense = Sense { waiting: judging, traffic: judging || self.could_soon_judge(o) };
        Decision { setting, reset_poll_limits, next, watch: self.watch(o), sense, events }
    }

    fn active(&self) -> CpuSet {
        self.inactive.iter().fold(self.allowed.clone(), |active, step| active.difference(step))
    }

    fn incumbent(&self) -> Setting {
        Setting { active: self.active(), retention: self.retained() }
    }

    fn costs_at_load(&self, load: f64) -> RetentionCosts {
        let RetentionCosts { wake_cost, poll_price } = costs(&self.config);
        RetentionCosts { wake_cost, poll_price: price_at_load(load, poll_price) }
    }

    /// Learns idle lengths only while retained, since a halt makes an idle period longer by the wake-up itself.
    fn learn(&mut self, o: &Observation, in_force: &Setting) {
        if !in_force.retention.is_on() {
            return;
        }
        for v in o.vcpus.iter().filter(|v| in_force.active.contains(v.cpu)) {
            let histogram = self.idle.entry(v.cpu).or_default();
            histogram.decay(o.period);
            // A period that outlasted the limit was polled for the limit, then halted.
            let short = v.polls.saturating_sub(v.halts);
            let timed_out =
                in_force.retention.limit * u32::try_from(v.halts.min(v.polls)).unwrap_or(u32::MAX);
            let mean = |time: Duration, n: u64| time.div_f64(n.max(1) as f64);
            histogram.add(short as f64, mean(v.poll_time.saturating_sub(timed_out), short));
            histogram.add(v.halts as f64, in_force.retention.limit + mean(v.halt_time, v.halts));
        }
    }

    fn update_allowed(&mut self, o: &Observation, events: &mut Vec<Event>) {
        let now = o.allowed();
        if now == self.allowed || now.is_empty() {
            return;
        }
        let from = std::mem::replace(&mut self.allowed, now);
        events.push(Event::AllowedChanged { from, to: self.allowed.clone() });
        self.abandon_trial(o.at);
        self.inactive.clear();
        self.memory.clear_kind();
        // The configuration was validated by `new`.
        if let Ok(consolidation) = Consolidation::new(self.config.consolidation, self.allowed.len()) {
            self.consolidation = consolidation;
        }
        self.start_over(o.at);
    }

    fn update_veto(&mut self, o: &Observation, in_force: Retention, events: &mut Vec<Event>) {
        let contended = self.contention.share_after(o);
        let Some(veto) = self.veto.step(contended.unwrap_or(0.0), o.throttled) else {
            // Without contention polling can resume; that a quota suffices shows only without it.
            if contended.is_some() && matches!(self.vetoed, Some(Veto::Steal { .. })) {
                self.after_veto.set_until(o.at);
            }
            return;
        };
        self.vetoed = Some(veto);
        // Steal ends the others' polling, too.
        let ends_others = in_force.is_on() && matches!(veto, Veto::Steal { .. });
        if self.end_polling(ReleaseReason::Veto(veto), o.at, events) || ends_others {
            // What a trial has lost is not known; `after_veto` keeps the next one away.
            self.after_veto.extend(o.at);
        }
    }

    /// Ends a trial without a verdict. What it has cost is paid for all the same.
    pub(crate) fn abandon_trial(&mut self, now: Duration) {
        let Some(trial) = self.trial.take() else { return };
        let paid = self.budget.spend(trial.time_lost(), now);
        match trial.difference() {
            Difference::Retention => self.retry_retention.not_before(paid),
            Difference::ActiveSet => self.retry_consolidation.not_before(paid),
        }
    }

    /// The workload changed: what was refuted can be tried again, what was proven must be proven again soon.
    fn start_over(&mut self, now: Duration) {
        self.consolidation.reset();
        let backoffs =
            [&mut self.proof, &mut self.retry_retention, &mut self.retry_consolidation, &mut self.after_veto];
        for backoff in backoffs {
            backoff.shorten(now);
        }
        self.unretained = None;
        self.overload.reset();
    }

    fn advance(&mut self, mut trial: Trial, o: &Observation, events: &mut Vec<Event>) {
        if trial.difference() == Difference::Retention && !trial.setting().retention.is_on() {
            self.unretained = Some(o.measurement(&trial.setting().active));
        }
        let verdict = trial.observe(o, &self.noise, self.terms.is_open());
        let Some(verdict) = verdict.or_else(|| self.confirmed(&trial, events)) else {
            self.trial = Some(trial);
            return;
        };
        let keep = match (verdict, trial.purpose()) {
            (Verdict::Proven(_), _) => true,
            (Verdict::Refuted(_), _) | (Verdict::Undecided(_), Purpose::Adopt) => false,
            // Where nothing contradicts the earlier proof, the setting stays.
            (Verdict::Undecided(Some(e)), Purpose::Reprove) => e.ratio >= 1.0,
            (Verdict::Undecided(None), Purpose::Reprove) if trial.loses_work() => false,
            (Verdict::Undecided(None), Purpose::Reprove) => match trial.difference() {
                Difference::Retention => self.memory.count_undecided_proof(),
                Difference::ActiveSet => true,
            },
        };
        let again_at = match trial.difference() {
            Difference::Retention => self.conclude_retention(&trial, keep, &verdict, o),
            Difference::ActiveSet => self.conclude_active_set(&trial, keep, &verdict, o, events),
        };
        events.push(Event::TrialEnded {
            candidate: trial.candidate().clone(),
            purpose: trial.purpose(),
            verdict,
            kept: self.incumbent(),
            again_at,
        });
    }

    /// The verdict, if another workload has confirmed the retention that this trial proves again.
    fn confirmed(&self, trial: &Trial, events: &mut Vec<Event>) -> Option<Verdict> {
        let Judgement::Confirmed(by, evidence) = self.terms.judgement else { return None };
        let verdict = trial.verdict_if_confirmed()?;
        events.push(Event::Confirmed { by, retention: trial.candidate().retention, evidence });
        Some(verdict)
    }

    /// Retention with the break-even limit beside this load; idle lengths set the limit once they are known.
    fn break_even(&self, load: f64) -> Retention {
        let method = self.config.method;
        let limit = match method {
            Method::Halt | Method::QosPoll => Duration::ZERO,
            _ => self.costs_at_load(load).bound(),
        };
        Retention { method, limit }
    }

    fn propose(
        &mut self,
        candidate: Setting,
        why: TrialReason,
        o: &Observation,
        events: &mut Vec<Event>,
    ) -> bool {
        let baseline = self.incumbent();
        if self.config.mode == Mode::DryRun {
            let retry = if candidate.active == baseline.active {
                &mut self.retry_retention
            } else {
                &mut self.retry_consolidation
            };
            retry.extend(o.at);
            events.push(Event::WouldTry { candidate, why });
            return false;
        }
        self.start_trial(baseline, candidate, Purpose::Adopt, why, o, events)
    }

    /// Puts a hypothesis on trial, unless it could not be judged yet or it is another workload's turn; returns whether it did.
    fn start_trial(
        &mut self,
        baseline: Setting,
        candidate: Setting,
        purpose: Purpose,
        why: TrialReason,
        o: &Observation,
        events: &mut Vec<Event>,
    ) -> bool {
        if o.workload.incomplete {
            return false;
        }
        if !self.terms.may_try {
            self.waits = true;
            return false;
        }
        events.push(Event::TrialStarted {
            baseline: baseline.clone(),
            candidate: candidate.clone(),
            purpose,
            why,
        });
        let trial = Trial::new(baseline, candidate, purpose, o);
        // A counter that is not there needs no longer blocks.
        let block = self.config.counter_block.filter(|_| o.workload.counter.is_some());
        let trial = trial.with_block(block.unwrap_or_default());
        let trial = trial.with_costs(self.config.waker_cost, self.config.poll_price);
        let refuted = match trial.difference() {
            Difference::Retention => &self.retry_retention,
            Difference::ActiveSet => &self.retry_consolidation,
        };
        let share = if purpose == Purpose::Adopt { refuted.error_share() } else { 1.0 };
        let trial = trial.with_error_share(share);
        self.trial = Some(self.with_judges(trial));
        true
    }
}
