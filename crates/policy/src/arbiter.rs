//! Several workloads on one machine: one [`Policy`] each, and what they share.
//!
//! Retention by the haltpoll governor or by latency requests acts on the whole machine. So there is one value of it
//! (module `shared`), a trial of it is everybody's, and everybody judges it (`judge`): it is adopted if it helps one
//! workload and harms none. The set of active vCPUs is each workload's own (`room`). There is one trial at a time on the
//! machine, so that no trial is another's noise, and turns are fair (`turn`).
//!
//! [`Arbiter::step`] is the main path. It says whose interval must end at the same moment, in [`Step::sample`]: these are
//! observed and stepped before anything is changed, and whom their steps name, too. Nobody is named twice at one moment.
//! With one workload each decision is what [`Policy::step`] says.
//!
//! A yield thread acts on one workload alone, so the arbiter does not handle them: a policy whose method is neither
//! [`Method::Haltpoll`](crate::Method::Haltpoll) nor [`Method::QosPoll`](crate::Method::QosPoll) does not retain.

mod judge;
mod polling;
mod room;
mod shared;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::judge::{Judge, Prior};
use self::polling::PollingTime;
use self::room::Shortage;
use crate::cadence::{MIN_INTERVAL, STEADY_INTERVAL};
use crate::guard::{Interval, Trial, has_room};
use crate::progress::Difference;
use crate::{
    CpuSet, Decision, Event, Evidence, Observation, Policy, ReleaseReason, Retention, Setting, WorkloadId,
};

/// What an [`Arbiter`] is configured with.
#[derive(Debug, Clone, PartialEq)]
pub struct ArbiterConfig {
    /// The machine's vCPUs.
    pub vcpus: CpuSet,
    /// The largest share (0..=1) of their time that idle vCPUs may spend polling; 1 for no limit.
    pub polling_share: f64,
}

/// Why nothing may poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forbidden {
    /// The configuration names this time.
    QuietHours,
    /// The instance has few CPU credits left.
    FewCredits,
    /// Somebody else holds the lever.
    LeverTaken,
    /// The lever failed.
    LeverFailed,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QuietHours => "these are quiet hours",
            Self::FewCredits => "there are few CPU credits left",
            Self::LeverFailed => "how idle vCPUs poll could not be changed",
            Self::LeverTaken => "somebody else controls how idle vCPUs poll",
        })
    }
}

/// What the machine's retention is to a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stake {
    /// It helps: a trial showed it.
    Helped,
    /// It does no harm: a trial did not show any.
    Tolerates,
    /// It does harm: a trial showed it, and nobody tries again for now.
    Objects,
}

/// The answer to one observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What to do for this workload. The retention in its setting is the machine's.
    pub decision: Decision,
    /// The machine's retention from now on.
    pub retention: Retention,
    /// Whether the machine must stop vCPUs from polling by the limit of an earlier setting.
    pub reset_poll_limits: bool,
    /// Whose interval must end now, too: observe and step these before anything is changed.
    pub sample: Vec<WorkloadId>,
}

/// One engaged workload.
#[derive(Debug)]
struct Member {
    policy: Policy,
    /// The machine's retention since its interval started.
    in_force: Retention,
    /// What the latest trial of retention showed: it tolerates or objects; `None` if it has not judged any.
    stake: Option<Stake>,
    /// Evidence of the help.
    evidence: Option<Evidence>,
    /// Whether it knows that retention is in force for others' sake.
    shared: bool,
    /// Since when it has been waiting for its turn to try something.
    waiting: Option<Duration>,
    /// The latest load, in vCPUs.
    load: f64,
    /// CPU time of the latest observation.
    cost: Duration,
    /// When its set became as small as it is.
    consolidated: Option<(usize, Duration)>,
    /// For its journal, at its next step.
    events: Vec<Event>,
}

/// The trial under way.
#[derive(Debug)]
struct Slot {
    owner: WorkloadId,
    /// Since when its owner had waited for it.
    since: Duration,
    candidate: Setting,
    difference: Difference,
    /// Those who judge it, if it is one of retention.
    judges: BTreeMap<WorkloadId, Judge>,
}

/// Several workloads on one machine. Pure, as [`Policy`] is.
#[derive(Debug)]
pub struct Arbiter {
    config: ArbiterConfig,
    members: BTreeMap<WorkloadId, Member>,
    slot: Option<Slot>,
    /// The latest trial of retention that was adopted, whose judges' last block might be missing.
    agreed: Option<Slot>,
    /// The machine's retention.
    retention: Retention,
    /// Whether it has just ended, outside trials.
    has_ended: bool,
    forbidden: Option<Forbidden>,
    polling: PollingTime,
    /// Whether a proof has been asked for, since somebody has not judged what is in force.
    asked: bool,
    shortage: Option<Shortage>,
    /// The first in turn, once it has been called.
    called: Option<WorkloadId>,
    /// Whose interval must end now.
    due: BTreeSet<WorkloadId>,
    /// Whose interval ended at this moment already.
    done: BTreeSet<WorkloadId>,
    /// The time of the latest observation.
    now: Duration,
}

impl Arbiter {
    /// A machine without engaged workloads.
    pub fn new(config: ArbiterConfig) -> Self {
        Self {
            config,
            members: BTreeMap::new(),
            slot: None,
            agreed: None,
            retention: Retention::NONE,
            has_ended: false,
            forbidden: None,
            polling: PollingTime::default(),
            asked: false,
            shortage: None,
            called: None,
            due: BTreeSet::new(),
            done: BTreeSet::new(),
            now: Duration::ZERO,
        }
    }

    /// Replaces the configuration.
    pub fn reconfigure(&mut self, config: ArbiterConfig) {
        self.config = config;
    }

    /// Engages a workload. What is retained already is in force for it, too, and proven soon. An `id` that is engaged
    /// leaves first.
    pub fn join(&mut self, id: WorkloadId, mut policy: Policy) {
        drop(self.leave(id));
        policy.retire(self.now);
        let member = Member {
            policy,
            in_force: self.retention,
            stake: None,
            evidence: None,
            shared: false,
            waiting: None,
            load: 0.0,
            cost: Duration::ZERO,
            consolidated: None,
            events: Vec::new(),
        };
        self.members.insert(id, member);
        if let Some(slot) = self.slot.as_mut().filter(|slot| slot.difference == Difference::Retention) {
            slot.judges.insert(id, Judge::new(Prior::Unknown));
        }
        self.announce();
    }

    /// Releases a workload. What was retained for its sake alone ends.
    pub fn leave(&mut self, id: WorkloadId) -> Option<Policy> {
        let mut member = self.members.remove(&id)?;
        self.due.remove(&id);
        self.done.clear();
        member.policy.retire(self.now);
        self.slot = self.slot.take().filter(|slot| slot.owner != id);
        for slot in self.slot.iter_mut().chain(&mut self.agreed) {
            slot.judges.remove(&id);
        }
        self.update_retention();
        Some(member.policy)
    }

    /// Forbids polling or allows it again; returns whether that is a change. What is retained ends at once.
    pub fn forbid_polling(&mut self, why: Option<Forbidden>) -> bool {
        if let Some(why) = why {
            self.done.clear();
            self.end_polling(ReleaseReason::Forbidden(why));
            self.update_retention();
        }
        std::mem::replace(&mut self.forbidden, why) != why
    }

    /// Takes an observation of a workload and decides what to do until the next. For a workload that is not engaged
    /// there is nothing to do.
    pub fn step(&mut self, id: WorkloadId, o: &Observation) -> Step {
        if !self.due.remove(&id) {
            self.done.clear();
        }
        self.done.insert(id);
        self.now = self.now.max(o.at);
        self.judge_last(id, o);
        let terms = self.terms(id);
        let Some(member) = self.members.get_mut(&id) else { return self.nothing(id, o) };
        let (active, claims) = (member.policy.setting().active, member.policy.claim().is_on());
        let interval = member.policy.trial().map_or(Interval::Settling, Trial::interval);
        let mut events = std::mem::take(&mut member.events);
        let mut decision = member.policy.step_under(o, terms);
        member.cost = o.cost;
        if o.is_average() {
            member.load = o.load();
        }
        self.polling.observe(o);
        self.judge(id, o);
        let ended = self.follow_trial(id, &decision.events, interval);
        self.follow_set(id, active);
        self.follow_claim(id, claims);
        self.check_polling(id);
        self.update_retention();
        self.update_turn(id, o, ended);
        self.check_room();
        self.update_retention();
        decision.next = decision.next.min(self.latest_step(id));
        decision.reset_poll_limits = self.resets_poll_limits(id, o, &decision);
        decision.setting = self.setting(id);
        if let Some(member) = self.members.get_mut(&id) {
            member.in_force = self.retention;
            events.append(&mut decision.events);
            events.append(&mut member.events);
        }
        decision.events = events;
        if self.due.is_empty() {
            self.done.clear();
        }
        Step {
            retention: self.retention,
            reset_poll_limits: decision.reset_poll_limits,
            decision,
            sample: self.sample(),
        }
    }

    /// The answer for a workload that is not engaged.
    fn nothing(&mut self, id: WorkloadId, o: &Observation) -> Step {
        self.done.remove(&id);
        let setting = Setting { active: o.allowed(), retention: self.retention };
        let decision = Decision { setting, next: STEADY_INTERVAL, ..Decision::default() };
        Step { decision, retention: self.retention, reset_poll_limits: false, sample: Vec::new() }
    }

    /// The time until the next step of `id` at the latest: it might be its turn, or polling might exceed its share.
    fn latest_step(&self, id: WorkloadId) -> Duration {
        let turn = if self.must_act_soon(id) { MIN_INTERVAL } else { Duration::MAX };
        let polls = self.retention.is_on() && self.slot.is_none();
        let left = || self.polling.left(self.config.vcpus.len(), self.config.polling_share);
        if polls { turn.min(left()) } else { turn }
    }

    /// Whether retention must not stay in effect after this step of `id`, or its trial says so, and there is room for
    /// that.
    fn resets_poll_limits(&mut self, id: WorkloadId, o: &Observation, decision: &Decision) -> bool {
        let ended = std::mem::take(&mut self.has_ended) && self.slot.is_none();
        let tries = self.members.get(&id).is_some_and(|m| m.policy.trial().is_some());
        let fits = |(other, m): (&WorkloadId, &Member)| {
            has_room(if *other == id { o.load() } else { m.load }, &m.policy.setting().active)
        };
        if tries { decision.reset_poll_limits } else { ended && self.members.iter().all(fits) }
    }

    /// The setting of a workload from now on; of one that is not engaged, the untouched set.
    pub fn setting(&self, id: WorkloadId) -> Setting {
        let active =
            self.members.get(&id).map_or_else(|| self.config.vcpus.clone(), |m| m.policy.setting().active);
        Setting { active, retention: self.retention }
    }

    /// The machine's retention from now on.
    pub fn retention(&self) -> Retention {
        self.retention
    }

    /// Whose interval should end at a change that no step made: after [`Arbiter::leave`] and
    /// [`Arbiter::forbid_polling`].
    pub fn sample(&self) -> Vec<WorkloadId> {
        self.due.iter().copied().collect()
    }

    /// What the machine's retention is to a workload; `None` before a trial showed it.
    pub fn stake(&self, id: WorkloadId) -> Option<Stake> {
        let member = self.members.get(&id)?;
        if member.policy.claim().is_on() {
            return Some(Stake::Helped);
        }
        member.stake.filter(|stake| *stake != Stake::Objects || member.objects(self.now))
    }

    /// The setting that a workload has on trial.
    pub fn trial(&self, id: WorkloadId) -> Option<Setting> {
        Some(self.members.get(&id)?.policy.trial()?.candidate().clone())
    }

    /// A workload's policy.
    pub fn policy(&self, id: WorkloadId) -> Option<&Policy> {
        self.members.get(&id).map(|member| &member.policy)
    }

    /// The share (0..=1) of the machine's vCPU time that idle vCPUs spent polling in the last seconds, as far as engaged
    /// workloads may use them.
    pub fn polling_share(&self) -> f64 {
        self.polling.share(self.config.vcpus.len())
    }
}
