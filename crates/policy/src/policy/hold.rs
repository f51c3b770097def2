//! Between trials: keep what is proven, let go what cannot pay any more, find the next hypothesis.

use super::{
    CpuId, CpuSet, Duration, Event, LetGo, MEMORY, Method, Observation, Policy, Purpose, RESUMED_PROOF,
    Retention, Setting, Shelved, Why, choose_limit,
};
use crate::{Advice, Conditions, MajorChange, Measurement};

/// Something is tried when wake-ups cost this share of one vCPU's time...
const WORTH_TRYING: f64 = 0.05;
/// ...and given up when they would cost less than this...
const NOT_WORTH_KEEPING: f64 = 0.005;
/// ...while this share of the vCPUs' time is idle. On vCPUs that are never idle retention costs nothing.
const IDLE_ENOUGH: f64 = 0.2;
/// The limit shrinks where polling in vain takes this share of a vCPU's time.
const WORTH_SAVING: f64 = 0.02;
/// Where less than this share of the time is idle there is nothing to prove retention with.
const HARDLY_IDLE: f64 = 0.02;
/// §5 reads averages: an interval shorter than this is not one.
const SHORTEST_AVERAGE: Duration = Duration::from_millis(10);

/// Whether the interval is long enough for averages.
pub(super) fn is_average(o: &Observation) -> bool {
    o.period >= SHORTEST_AVERAGE
}

impl Policy {
    pub(super) fn hold(&mut self, o: &Observation, events: &mut Vec<Event>) {
        if self.fold_again(o, events) {
            return;
        }
        if !self.searches(o) {
            self.hold_retention(o, events);
        }
        if self.trial.is_none() {
            self.hold_active_set(o, events);
        }
        if self.trial.is_none() && self.proof.is_over(o.at) {
            self.prove_again(o, events);
        }
    }

    /// Whether waking idle vCPUs costs enough for a change to pay.
    pub(super) fn is_worth_trying(&self, o: &Observation) -> bool {
        self.lost_to_wake_ups(&o.measurement(&self.allowed), o) > WORTH_TRYING
    }

    /// Whether a search for a set is under way: its next step comes before retention, which would have to be proven again
    /// on each set, and costs less on the one that is found.
    fn searches(&self, o: &Observation) -> bool {
        let may = self.may_consolidate(o) && self.retry_consolidation.is_over(o.at);
        if !may || !self.consolidation.is_searching() {
            return false;
        }
        let m = o.measurement(&self.active());
        self.consolidation.next_size(&m, self.without_wake_ups(&m).as_ref()).is_some()
    }

    /// Whether vCPUs may be taken away, and this interval says enough for it.
    fn may_consolidate(&self, o: &Observation) -> bool {
        let movable = self.config.consolidate && o.workload.threads <= self.config.most_threads;
        movable && self.allowed.len() >= 2 && is_average(o)
    }

    pub(super) fn prove_soon(&mut self, now: Duration) {
        self.proof.shorten(now);
        self.proof.set_until(now + RESUMED_PROOF);
    }

    pub(super) fn restore_all(&mut self, now: Duration) {
        self.deactivated.clear();
        self.start_over(now);
        // The vCPUs that come back fall idle until the load has spread.
        self.resume_retention(now);
    }

    fn resume_retention(&mut self, now: Duration) -> bool {
        match self.remembered.take() {
            Some((retention, since)) if now.saturating_sub(since) < MEMORY && !self.retention.is_on() => {
                self.retention = retention;
                self.prove_soon(now);
                true
            }
            _ => false,
        }
    }

    /// What another load refuted is in force again, if the load is not that one any more.
    fn unshelve_retention(&mut self, o: &Observation) -> bool {
        let Some(Shelved { retention, at, load }) = self.shelved else { return false };
        if o.at.saturating_sub(at) > MEMORY {
            self.shelved = None;
            return false;
        }
        let change = (o.load() - load).abs() / self.allowed.len().max(1) as f64;
        let other = is_average(o) && change > self.config.consolidation.utilization_change;
        if other {
            self.shelved = None;
            self.retention = retention;
            self.prove_soon(o.at);
        }
        other
    }

    fn hold_retention(&mut self, o: &Observation, events: &mut Vec<Event>) {
        let active = self.active();
        let m = o.measurement(&active);
        let lost = self.lost_to_wake_ups(&m, o);
        let idle_periods_per_s = m.s_idle as f64 / o.period.as_secs_f64().max(1e-6);
        if self.retention.is_on() {
            if lost < NOT_WORTH_KEEPING && 1.0 - m.utilization > IDLE_ENOUGH {
                self.let_go(o.at, LetGo::Rare { per_s: idle_periods_per_s }, events);
            } else {
                self.follow_idle_lengths(o, &active, events);
            }
        } else if lost > WORTH_TRYING && self.may_retain(o.at) {
            if self.resume_retention(o.at) || self.unshelve_retention(o) {
                events.push(Event::Resumed { setting: self.incumbent() });
            } else if self.retry_retention.is_over(o.at) {
                let candidate = Setting { active, retention: self.break_even() };
                let halts_per_s = lost / self.config.wake_cost.as_secs_f64().max(1e-9);
                let why = Why::WakeUps { halts_per_s, wake_cost: self.config.wake_cost, lost };
                self.begin(candidate, why, o, events);
            }
        }
    }

    fn may_retain(&self, now: Duration) -> bool {
        self.config.method != Method::Halt && !self.veto.is_closed() && self.after_veto.is_over(now)
    }

    /// What wake-ups from the idle periods in `m` cost the workload if each of them halts: a share of one vCPU's
    /// time. Each of its threads is woken at most once for each time that it left a vCPU; other idle periods belong
    /// to other programs.
    fn lost_to_wake_ups(&self, m: &Measurement, o: &Observation) -> f64 {
        m.s_idle.min(m.s_work) as f64 * self.config.wake_cost.as_secs_f64() / o.period.as_secs_f64().max(1e-6)
    }

    fn let_go(&mut self, now: Duration, why: LetGo, events: &mut Vec<Event>) {
        self.remembered = Some((self.retention, now));
        self.retention = Retention::NONE;
        events.push(Event::LetGo { why });
    }

    /// The limit with the least expected cost on the idle lengths seen lately; zero means halting is cheaper.
    fn follow_idle_lengths(&mut self, o: &Observation, active: &CpuSet, events: &mut Vec<Event>) {
        if matches!(self.retention.method, Method::QosPoll | Method::Halt) {
            return;
        }
        let seen: Vec<_> =
            self.idle.iter().filter(|(cpu, _)| active.contains(**cpu)).map(|(_, h)| h.clone()).collect();
        let from = self.retention.limit;
        let wanted = choose_limit(&seen, &self.costs());
        // A lower limit saves only the polling that ended in a halt all the same.
        let halts = o.halt_rate(active) / active.len().max(1) as f64;
        let wanted = if halts * from.as_secs_f64() < WORTH_SAVING { wanted.max(from) } else { wanted };
        let to = self.limit.step(o.at, from, wanted);
        if to.is_zero() {
            self.let_go(o.at, LetGo::Long, events);
        } else if to != from {
            self.retention.limit = to;
            events.push(Event::LimitChanged { from, to });
        }
    }

    fn hold_active_set(&mut self, o: &Observation, events: &mut Vec<Event>) {
        if !self.may_consolidate(o) {
            return;
        }
        let active = self.active();
        let m = o.measurement(&active);
        if self.deactivated.is_empty() && self.lost_to_wake_ups(&m, o) < WORTH_TRYING {
            self.unretained = None;
            return;
        }
        let lighter = self.without_wake_ups(&m);
        self.unretained = None;
        match self.consolidation.step(&m, lighter.as_ref()) {
            Advice::Keep(_) => {}
            Advice::RestoreLast { refutation, then } => {
                self.deactivated.pop();
                events.push(Event::RolledBack { active: self.active(), refutation, then });
            }
            Advice::RestoreAll(change) => self.major_change(change, o, events),
            Advice::Deactivate { to, conditions } => {
                if self.retry_consolidation.is_over(o.at) {
                    self.try_fewer(to, conditions, &active, o, events);
                }
            }
        }
    }

    /// The measurement without retention and without wake-ups, if one is known: what waking across vCPUs costs in CPU
    /// time, retained or not, would vanish on the smaller set and must not count against it.
    fn without_wake_ups(&self, m: &Measurement) -> Option<Measurement> {
        let halting = self.unretained.or_else(|| (!self.retention.is_on()).then_some(*m))?;
        Some(halting.without_wake_ups(self.config.waker_cost))
    }

    fn major_change(&mut self, change: MajorChange, o: &Observation, events: &mut Vec<Event>) {
        if !self.deactivated.is_empty() {
            events.push(Event::MajorChange { change });
        }
        self.restore_all(o.at);
    }

    fn try_fewer(
        &mut self,
        to: usize,
        conditions: Conditions,
        active: &CpuSet,
        o: &Observation,
        events: &mut Vec<Event>,
    ) {
        let Some(cpu) = self.to_deactivate(active, o) else { return };
        let mut fewer = active.clone();
        while fewer.len() > to
            && let Some(next) = self.to_deactivate(&fewer, o)
        {
            fewer.remove(next);
        }
        let spared = active.len() - fewer.len();
        let candidate = Setting { active: fewer, retention: self.retention };
        let why = if conditions.hold() {
            Why::Conditions { conditions, cpu, spared }
        } else {
            Why::CutPaid { conditions, spared }
        };
        self.begin(candidate, why, o, events);
    }

    /// The vCPU that the others miss least: the host takes most from it, or its SMT sibling stays active, or
    /// few active vCPUs share its cache; the highest number if all is equal (interrupts prefer low ones).
    fn to_deactivate(&self, active: &CpuSet, o: &Observation) -> Option<CpuId> {
        let place = |cpu: CpuId| self.config.places.iter().find(|p| p.cpu == cpu);
        let others = |cpu: CpuId| active.iter().filter(move |c| *c != cpu);
        let steal = |cpu: CpuId| {
            let stolen = o.vcpus.iter().find(|v| v.cpu == cpu).map_or(Duration::ZERO, |v| v.steal);
            // Tenths of the interval: less than that is noise.
            stolen.as_nanos() * 10 / o.period.as_nanos().max(1)
        };
        let sibling_stays = |cpu: CpuId| {
            place(cpu).is_some_and(|p| others(cpu).any(|c| place(c).is_some_and(|q| q.core == p.core)))
        };
        let cache_mates = |cpu: CpuId| {
            place(cpu)
                .map_or(0, |p| others(cpu).filter(|c| place(*c).is_some_and(|q| q.llc == p.llc)).count())
        };
        active
            .iter()
            .max_by_key(|&cpu| (steal(cpu), sibling_stays(cpu), std::cmp::Reverse(cache_mates(cpu)), cpu))
    }

    /// Tries what is in force against the system without its last step.
    fn prove_again(&mut self, o: &Observation, events: &mut Vec<Event>) {
        let candidate = self.incumbent();
        let idle = 1.0 - o.measurement(&candidate.active).utilization;
        let baseline = if let Some(last) = self.deactivated.last() {
            let active = candidate.active.iter().chain(last.iter()).collect();
            Setting { active, retention: candidate.retention }
        } else if candidate.retention.is_on() && idle > HARDLY_IDLE {
            Setting { active: candidate.active.clone(), retention: Retention::NONE }
        } else {
            return;
        };
        self.start_trial(baseline, candidate, Purpose::Reprove, Why::TrustExpired, o, events);
    }
}
