//! Between trials: keep what is proven, release what cannot pay any more, find the next hypothesis.

use super::{
    CpuId, CpuSet, Duration, Event, MIN_INTERVAL, Method, Observation, PROOF_DELAY, Policy, Purpose,
    RESUMED_PROOF_DELAY, RETRY_DELAY, ReleaseReason, Retention, Setting, TrialReason,
};
use crate::consolidation::{Advice, scale};
use crate::memory::Recalled;
use crate::progress::MOSTLY_IDLE_LOAD;
use crate::retention::choose_limit;
use crate::{Conditions, Evidence, KnownVcpus, MajorChange, Measurement};

/// A trial starts when wake-ups cost this share of one vCPU's time; for retention, this share of the workload's
/// is enough...
const TRIAL_THRESHOLD: f64 = 0.05;
/// ...if they cost it on average over this time, too: vCPUs that several workloads keep busy are idle for moments, and a trial
/// then costs more than it can win...
const USUAL: Duration = Duration::from_secs(1);
/// ...traffic through sockets is counted where they cost this share of it...
const SENSE_SHARE: f64 = 0.5;
/// ...and retention ends when they would cost less than this...
const RELEASE_THRESHOLD: f64 = 0.005;
/// ...while this share of the vCPUs' time is idle. On vCPUs that are never idle, retention costs nothing.
const RELEASE_IDLE_SHARE: f64 = 0.2;
/// The limit shrinks only if polling in vain takes this share of a vCPU's time.
const SHRINK_THRESHOLD: f64 = 0.02;
/// With less idle time than this, now or on average over [`USUAL`], retention has no effect to prove.
const MIN_IDLE_SHARE: f64 = 0.02;

/// Averages over [`USUAL`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Usual {
    /// What wake-ups cost, in vCPUs.
    lost: f64,
    /// The share of the vCPUs' time that is idle.
    idle: f64,
}

impl Policy {
    pub(super) fn hold(&mut self, o: &Observation, events: &mut Vec<Event>) {
        if self.resume_set(o, events) || self.overload.is_ending() {
            return;
        }
        let deferred = self.memory.has_deferred_trial();
        if !self.is_searching(o) {
            self.hold_retention(o, events);
        }
        if self.memory.has_deferred_trial() != deferred {
            // One more sample shows the load before anything is tried under it.
            return;
        }
        // What rests on an earlier run alone is proven first: it could do harm today.
        if self.trial.is_none() && self.memory.is_unproven() && self.proof.is_over(o.at) {
            self.prove_again(o, events);
        }
        let waits = self.memory.is_unproven() && !self.proof.is_over(o.at);
        if self.trial.is_none() && !waits {
            self.hold_active_set(o, events);
        }
        if self.trial.is_none() && self.proof.is_over(o.at) {
            self.prove_again(o, events);
        }
    }

    /// Whether waking idle vCPUs costs enough for a change to pay.
    pub(super) fn is_worth_trying(&self, o: &Observation) -> bool {
        self.lost_to_wake_ups(&o.measurement(&self.allowed), o) > TRIAL_THRESHOLD
    }

    /// Updates the averages, but not in a trial, which vacates vCPUs. A load that begins counts at once where nothing is known
    /// yet, and else within a tenth of a second if its wake-ups cost ten times what a trial needs.
    pub(super) fn note_usual(&mut self, o: &Observation) {
        if self.trial.is_some() || self.judges() {
            return;
        }
        let m = o.measurement(&self.allowed);
        let now = Usual { lost: self.lost_to_wake_ups(&m, o), idle: 1.0 - m.utilization };
        let weight = (o.period.as_secs_f64() / USUAL.as_secs_f64()).min(1.0);
        let average = |usual: f64, now: f64| usual + weight * (now - usual);
        self.usual = Some(self.usual.map_or(now, |usual| Usual {
            lost: average(usual.lost, now.lost),
            idle: average(usual.idle, now.idle),
        }));
    }

    /// Whether a trial could begin before long: wake-ups cost enough, or a smaller set avoids them and is to be proven
    /// again. On vCPUs that are hardly ever idle, measuring would cost more than a trial could win.
    pub(super) fn could_soon_judge(&self, o: &Observation) -> bool {
        let lost = self.lost_to_wake_ups(&o.measurement(&self.allowed), o);
        lost > SENSE_SHARE * least_lost(o) || !self.inactive.is_empty()
    }

    /// Whether a search for a set is under way. Its next step comes before retention, which would have to be
    /// proven again on each set, and is cheaper on the final one.
    fn is_searching(&self, o: &Observation) -> bool {
        let can_try = self.can_consolidate(o) && self.retry_consolidation.is_over(o.at);
        if !can_try || !self.consolidation.is_searching() || self.retention_comes_first(o) {
            return false;
        }
        let m = o.measurement(&self.active());
        self.could_pay(&m, o)
            && self.consolidation.next_size(&m, self.without_wake_ups(&m).as_ref()).is_some()
    }

    /// Whether there is something that a smaller set could save, or saves already. A thread that runs alone has nobody to
    /// share a vCPU with.
    fn could_pay(&self, m: &Measurement, o: &Observation) -> bool {
        let hands_over = o.workload.ran.is_none_or(|threads| threads > 1);
        !self.inactive.is_empty() || hands_over && self.lost_to_wake_ups(m, o) >= TRIAL_THRESHOLD
    }

    /// Whether consolidation is allowed, and this interval is long enough to decide on it.
    fn can_consolidate(&self, o: &Observation) -> bool {
        let movable = self.config.consolidate && o.workload.threads <= self.config.most_threads;
        movable && self.allowed.len() >= 2 && o.is_average()
    }

    pub(super) fn prove_soon(&mut self, now: Duration) {
        self.proof.shorten(now);
        self.proof.set_until(now + RESUMED_PROOF_DELAY);
        self.proved_set = false;
    }

    pub(super) fn restore_all(&mut self, now: Duration, events: &mut Vec<Event>) {
        self.inactive.clear();
        self.start_over(now);
        // The returning vCPUs are idle until the load has spread.
        if !self.retained().is_on()
            && self.terms.other.is_none()
            && self.can_retain(now)
            && let Some(retention) = self.memory.take_latest(now)
        {
            self.retention = retention;
            self.resume(None, now, events);
        }
    }

    /// A proven setting is in force again; if only an earlier run has proven it (by `known`), it is proven at once.
    fn resume(&mut self, known: Option<Evidence>, now: Duration, events: &mut Vec<Event>) {
        self.prove_soon(now);
        if known.is_some() {
            // After one observation of it.
            self.proof.set_until(now + MIN_INTERVAL);
        }
        events.push(Event::Resumed { setting: self.incumbent(), known });
    }

    /// Resumes the number of vCPUs that paid in an earlier run.
    fn resume_vcpus(&mut self, known: KnownVcpus, o: &Observation, events: &mut Vec<Event>) {
        let fewer = self.most_useful(&self.allowed, known.active, o);
        if !self.fits(&fewer, o.load()) {
            return;
        }
        self.leave_out(vec![self.allowed.difference(&fewer)], o);
        self.overload.proven_with(known.runnable, &fewer);
        self.resume(Some(known.evidence), o.at, events);
    }

    /// Puts smaller sets in force, step by step, that were proven before.
    pub(super) fn leave_out(&mut self, steps: Vec<CpuSet>, o: &Observation) {
        let m = o.measurement(&self.allowed);
        for step in steps {
            self.inactive.push(step);
            self.consolidation.resume(&m, self.active().len());
        }
    }

    /// Whether new retention may be tried now: long enough after this run or an earlier one refuted it.
    fn can_try_retention(&mut self, now: Duration) -> bool {
        if !self.retry_retention.is_over(now) || self.memory.defers_trial() {
            return false;
        }
        let refuted = self.memory.take_delay();
        self.retry_retention.not_before(now + delay_after(refuted));
        self.retry_retention.is_over(now)
    }

    /// Whether a smaller set may be tried now, in the same way.
    fn can_try_smaller_set(&mut self, now: Duration) -> bool {
        if !self.retry_consolidation.is_over(now) {
            return false;
        }
        let refuted = self.memory.take_delay_of_vcpus();
        self.retry_consolidation.not_before(now + delay_after(refuted));
        self.retry_consolidation.is_over(now)
    }

    fn hold_retention(&mut self, o: &Observation, events: &mut Vec<Event>) {
        let active = self.active();
        let m = o.measurement(&active);
        let lost = self.lost_to_wake_ups(&m, o);
        let idle_periods_per_s = m.s_idle as f64 / o.period.as_secs_f64().max(1e-6);
        if self.retention.is_on() {
            if lost < RELEASE_THRESHOLD && 1.0 - m.utilization > RELEASE_IDLE_SHARE {
                self.release(o.at, ReleaseReason::Rare { per_s: idle_periods_per_s }, events);
            } else {
                self.adapt_limit(o, &active, events);
            }
        } else if self.needs_retention(lost, o)
            && !self.recall_retention(o, events)
            && self.usual.is_none_or(|usual| usual.lost > least_lost(o))
            && self.can_try_retention(o.at)
        {
            let candidate = Setting { active, retention: self.break_even(o.load()) };
            let halts_per_s = lost / self.config.wake_cost.as_secs_f64().max(1e-9);
            let why = TrialReason::WakeUps { halts_per_s, wake_cost: self.config.wake_cost, lost };
            self.propose(candidate, why, o, events);
        }
    }

    /// Whether retention could pay where wake-ups cost `lost` vCPUs. What is in force for others' sake already shows what
    /// it does to this workload in their proofs.
    fn needs_retention(&self, lost: f64, o: &Observation) -> bool {
        lost > least_lost(o) && !self.terms.elsewhere.is_on() && self.can_retain(o.at)
    }

    /// Resumes what was proven for this load.
    fn recall_retention(&mut self, o: &Observation, events: &mut Vec<Event>) -> bool {
        let Some(Recalled { retention, known }) = self.memory.recall(o) else { return false };
        self.retention = retention;
        self.resume(known, o.at, events);
        true
    }

    /// Resumes what an earlier run has proven for this load, also in another workload's trial.
    pub(super) fn recall_known(&mut self, o: &Observation, events: &mut Vec<Event>) -> bool {
        let lost = self.lost_to_wake_ups(&o.measurement(&self.active()), o);
        let needs = !self.retention.is_on() && self.needs_retention(lost, o);
        needs && self.memory.knows(o) && self.recall_retention(o, events)
    }

    fn can_retain(&self, now: Duration) -> bool {
        self.terms.may_retain
            && self.config.method != Method::Halt
            && !self.veto.is_closed()
            && self.after_veto.is_over(now)
    }

    /// What wake-ups would cost the workload if each idle period in `m` were a halt, as a share of one vCPU's
    /// time. A thread is woken at most once per time that it left a vCPU; other idle periods belong to other
    /// programs.
    fn lost_to_wake_ups(&self, m: &Measurement, o: &Observation) -> f64 {
        m.s_idle.min(m.s_work) as f64 * self.config.wake_cost.as_secs_f64() / o.period.as_secs_f64().max(1e-6)
    }

    fn release(&mut self, now: Duration, why: ReleaseReason, events: &mut Vec<Event>) {
        self.memory.interrupted(self.retention, now);
        self.retention = Retention::NONE;
        events.push(Event::Released { why });
    }

    /// Adapts the limit to the recent idle lengths, at the least expected cost; zero means that halting is
    /// cheaper.
    fn adapt_limit(&mut self, o: &Observation, active: &CpuSet, events: &mut Vec<Event>) {
        if matches!(self.retention.method, Method::QosPoll | Method::Halt) {
            return;
        }
        let seen: Vec<_> =
            self.idle.iter().filter(|(cpu, _)| active.contains(**cpu)).map(|(_, h)| h.clone()).collect();
        let from = self.retention.limit;
        let wanted = choose_limit(&seen, &self.costs_at_load(o.load()));
        // A lower limit saves only polling that ended in a halt anyway.
        let halts = o.halt_rate(active) / active.len().max(1) as f64;
        let wanted = if halts * from.as_secs_f64() < SHRINK_THRESHOLD { wanted.max(from) } else { wanted };
        let to = self.limit.step(o.at, from, wanted);
        if to.is_zero() {
            self.release(o.at, ReleaseReason::Long, events);
        } else if to != from {
            self.retention.limit = to;
            events.push(Event::LimitChanged { from, to });
        }
    }

    fn hold_active_set(&mut self, o: &Observation, events: &mut Vec<Event>) {
        if !self.can_consolidate(o) {
            return;
        }
        let active = self.active();
        let m = o.measurement(&active);
        if !self.could_pay(&m, o) {
            self.unretained = None;
            return;
        }
        if self.inactive.is_empty()
            && let Some(known) = self.memory.take_vcpus(self.retained().is_on())
        {
            self.resume_vcpus(known, o, events);
            return;
        }
        if self.inactive.is_empty() && o.at >= self.search_again_at() {
            self.consolidation.search_again();
        }
        let lighter = self.without_wake_ups(&m);
        let unretained = self.unretained.take();
        match self.consolidation.step(&m, lighter.as_ref()) {
            Advice::Keep => {}
            Advice::RestoreAll(change) => self.major_change(change, o, events),
            Advice::Consolidate { to, conditions } => {
                let may_try = self.can_try_smaller_set(o.at) && !self.retention_comes_first(o);
                if may_try && !self.try_smaller_set(to, conditions, &active, o, events) {
                    self.consolidation.withdraw();
                    self.unretained = unretained;
                }
            }
        }
    }

    /// When a search for a set that has ended without one is repeated under the same load. What it found is as good as it
    /// was; only a change that shows in no other way, or a verdict that was wrong, makes it worth its cost.
    pub(super) fn search_again_at(&self) -> Duration {
        self.retry_consolidation.until() + PROOF_DELAY.1
    }

    /// Whether retention is about to be tried under a load that could be an open loop: what can be improved
    /// there is its latency, and a smaller set rarely does.
    fn retention_comes_first(&self, o: &Observation) -> bool {
        let soon = o.at + RETRY_DELAY.0;
        let can_try = !self.retained().is_on() && self.can_retain(soon) && self.retry_retention.is_over(soon);
        can_try && o.load() < MOSTLY_IDLE_LOAD
    }

    /// The measurement without retention and without wake-ups, if known: the CPU cost of waking across vCPUs
    /// would vanish on the smaller set and must not count against it.
    fn without_wake_ups(&self, m: &Measurement) -> Option<Measurement> {
        let halting = self.unretained.or_else(|| (!self.retained().is_on()).then_some(*m))?;
        Some(halting.without_wake_ups(self.config.waker_cost))
    }

    fn major_change(&mut self, change: MajorChange, o: &Observation, events: &mut Vec<Event>) {
        if !self.inactive.is_empty() {
            events.push(Event::MajorChange { change });
        }
        self.restore_all(o.at, events);
    }

    fn try_smaller_set(
        &mut self,
        to: usize,
        conditions: Conditions,
        active: &CpuSet,
        o: &Observation,
        events: &mut Vec<Event>,
    ) -> bool {
        let Some(cpu) = self.least_useful(active, o) else { return false };
        let fewer = self.most_useful(active, to, o);
        let inactive = active.len() - fewer.len();
        let fits = self.fits(&fewer, o.load());
        let candidate = Setting { active: fewer, retention: self.retained() };
        let why = if conditions.hold() {
            TrialReason::Conditions { conditions, cpu, inactive }
        } else {
            TrialReason::SmallerSetPaid { conditions, inactive }
        };
        fits && self.propose(candidate, why, o, events)
    }

    /// The `to` most useful ones of the `active` vCPUs.
    fn most_useful(&self, active: &CpuSet, to: usize, o: &Observation) -> CpuSet {
        let mut fewer = active.clone();
        while fewer.len() > to
            && let Some(next) = self.least_useful(&fewer, o)
        {
            fewer.remove(next);
        }
        fewer
    }

    /// The least useful vCPU: the one to which the most load of others is confined, or with the most steal, or
    /// whose SMT sibling stays active, or whose cache few active vCPUs share; the highest number in a tie
    /// (interrupts prefer low ones).
    fn least_useful(&self, active: &CpuSet, o: &Observation) -> Option<CpuId> {
        let place = |cpu: CpuId| self.config.places.iter().find(|p| p.cpu == cpu);
        let others = |cpu: CpuId| active.iter().filter(move |c| *c != cpu);
        let steal = |cpu: CpuId| {
            let stolen = o.vcpus.iter().find(|v| v.cpu == cpu).map_or(Duration::ZERO, |v| v.steal);
            // In tenths of the interval: smaller differences are noise.
            stolen.as_nanos() * 10 / o.period.as_nanos().max(1)
        };
        // In tenths of a vCPU, likewise.
        let tenths = |load: &f64| scale(Duration::from_nanos(10), *load).as_nanos();
        let taken = |cpu: CpuId| self.terms.confined.get(&cpu).map_or(0, tenths);
        let sibling_stays = |cpu: CpuId| {
            place(cpu).is_some_and(|p| others(cpu).any(|c| place(c).is_some_and(|q| q.core == p.core)))
        };
        let cache_mates = |cpu: CpuId| {
            place(cpu)
                .map_or(0, |p| others(cpu).filter(|c| place(*c).is_some_and(|q| q.llc == p.llc)).count())
        };
        active.iter().max_by_key(|&cpu| {
            (taken(cpu), steal(cpu), sibling_stays(cpu), std::cmp::Reverse(cache_mates(cpu)), cpu)
        })
    }

    /// Puts the setting in force on trial against the one before its last step, or without retention, in turns.
    fn prove_again(&mut self, o: &Observation, events: &mut Vec<Event>) {
        let candidate = self.incumbent();
        let idle = 1.0 - o.measurement(&candidate.active).utilization;
        let idle = idle.min(self.usual.map_or(idle, |usual| usual.idle));
        // Where others have yet to judge it, it is proven without an effect here, too.
        let retains = self.retention.is_on() && (idle > MIN_IDLE_SHARE || self.terms.is_open());
        let last = self.inactive.last().filter(|_| !retains || !self.proved_set);
        let baseline = if let Some(last) = last {
            let active = candidate.active.iter().chain(last.iter()).collect();
            Setting { active, retention: candidate.retention }
        } else if retains {
            Setting { active: candidate.active.clone(), retention: Retention::NONE }
        } else {
            return;
        };
        let set = last.is_some();
        if self.start_trial(baseline, candidate, Purpose::Reprove, TrialReason::TrustExpired, o, events) {
            self.proved_set = set;
        }
    }
}

/// From what loss on, in vCPUs, retention could pay: a small workload's share is smaller.
fn least_lost(o: &Observation) -> f64 {
    TRIAL_THRESHOLD * o.load().clamp(MOSTLY_IDLE_LOAD, 1.0)
}

/// How long a run waits for what so many runs before it refuted.
fn delay_after(runs: u32) -> Duration {
    let (first, longest) = RETRY_DELAY;
    if runs == 0 { Duration::ZERO } else { first.saturating_mul(2_u32.saturating_pow(runs)).min(longest) }
}
