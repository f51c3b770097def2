//! Whose turn it is: one trial at a time on the machine, and who has waited longest is next.

use std::time::Duration;

use super::judge::{Opinion, Prior};
use super::{Arbiter, Judge, Member, Slot};
use crate::guard::{Interval, Trial};
use crate::policy::{Judgement, OtherTrial, Terms};
use crate::progress::Difference;
use crate::{Event, Observation, Purpose, Retention, WorkloadId};

impl Arbiter {
    /// The workload that has waited longest, if there is no trial.
    pub(super) fn first_in_turn(&self) -> Option<WorkloadId> {
        let waiting = self.members.iter().filter_map(|(id, m)| Some((m.waiting?, *id)));
        waiting.min().map(|(_, id)| id).filter(|_| self.slot.is_none())
    }

    /// What the others leave to the workload at this step.
    pub(super) fn terms(&self, id: WorkloadId) -> Terms {
        let Some(member) = self.members.get(&id) else { return Terms::default() };
        let others = || self.members.iter().filter(|(other, _)| **other != id).map(|(_, m)| m);
        let foreign = self.slot.as_ref().filter(|slot| slot.owner != id);
        let trial = foreign.and_then(|slot| self.members.get(&slot.owner)?.policy.trial());
        let own = self.slot.as_ref().filter(|slot| slot.owner == id);
        // While its own trial runs, its turn has not ended.
        let since = own.map(|slot| slot.since).or(member.waiting).unwrap_or(Duration::MAX);
        let first =
            others().all(|m| m.waiting.is_none_or(|other| other > since)) || self.first_in_turn() == Some(id);
        let unjudged = || !others().all(Member::has_judged);
        Terms {
            in_force: Some(member.in_force),
            elsewhere: others().map(|m| m.policy.claim()).fold(Retention::NONE, Retention::stronger),
            other: trial.map(|t| OtherTrial { purpose: t.purpose(), difference: t.difference() }),
            block: trial.map_or(Duration::ZERO, Trial::next),
            may_try: foreign.is_none() && first,
            may_retain: self.may_retain(id),
            judgement: match own {
                Some(slot) => judgement(slot),
                None if unjudged() => Judgement::Open,
                None => Judgement::Allowed,
            },
            judging_cost: others().map(|m| m.cost).sum(),
            confined: self.confined_beside(id),
        }
    }

    /// After a step of `id`, whose trial `ended` in it or not: whether it waits from now on, and who is next.
    pub(super) fn update_turn(&mut self, id: WorkloadId, o: &Observation, ended: bool) {
        let now = self.now;
        let unjudged = !self.members.values().all(Member::has_judged);
        let owns = self.slot.as_ref().is_some_and(|slot| slot.owner == id);
        let free = self.slot.is_none();
        if let Some(member) = self.members.get_mut(&id) {
            member.waiting = match member.waiting {
                _ if owns => None,
                // Its search goes on, or its trial was none.
                waiting if ended => waiting,
                // What is in force and not judged by all comes before everything else.
                _ if member.policy.waits() && unjudged && member.policy.claim().is_on() => {
                    Some(Duration::ZERO)
                }
                waiting if member.policy.waits() => waiting.or(Some(now)),
                // The interval was too short to decide by.
                waiting if free && !o.is_average() => waiting,
                _ => None,
            };
        }
        let first = self.first_in_turn();
        if let Some(next) = first.filter(|next| self.called != first && !self.done.contains(next)) {
            self.due.insert(next);
        }
        self.called = first;
    }

    /// Whether it is the turn of the workload, and it or others have something to try.
    pub(super) fn must_act_soon(&self, id: WorkloadId) -> bool {
        let waits = |(other, m): (&WorkloadId, &Member)| {
            if *other == id { m.policy.waits() } else { m.waiting.is_some() }
        };
        self.first_in_turn() == Some(id) && self.members.iter().any(waits)
    }

    /// Follows the trial of `id` after its step: its end, its start, and the ends of its blocks. `interval` is
    /// what has ended just now. Returns whether a trial ended.
    pub(super) fn follow_trial(&mut self, id: WorkloadId, events: &[Event], interval: Interval) -> bool {
        let started = events.iter().any(|e| matches!(e, Event::TrialStarted { .. }));
        let Some(member) = self.members.get(&id) else { return false };
        let owns = self.slot.as_ref().is_some_and(|slot| slot.owner == id);
        let ended = owns && (started || member.policy.trial().is_none());
        if ended {
            self.conclude(id, events, interval);
        }
        let Some(trial) = self.members.get(&id).and_then(|m| m.policy.trial()) else { return ended };
        let settles = interval == Interval::Settling && trial.interval() == Interval::Settling;
        if started {
            self.start(id);
        } else if trial.difference() == Difference::Retention && !settles {
            self.end_interval(interval);
        }
        ended
    }

    /// A trial of `id` has started.
    fn start(&mut self, id: WorkloadId) {
        let Some(member) = self.members.get(&id) else { return };
        let Some(trial) = member.policy.trial() else { return };
        let (since, new) = (member.waiting.unwrap_or(self.now), trial.purpose() == Purpose::Adopt);
        let difference = trial.difference();
        let others = self.members.iter().filter(|(other, _)| **other != id);
        let judges = others.filter(|_| difference == Difference::Retention);
        let judges = judges
            .map(|(other, m)| (*other, Judge::new(if new { Prior::Unknown } else { m.prior() })))
            .collect();
        self.slot = Some(Slot { owner: id, since, candidate: trial.candidate().clone(), difference, judges });
        if difference == Difference::Retention {
            (self.asked, self.agreed) = (false, None);
        }
    }

    /// A block of the trial of retention has ended, or starts: the intervals of all others end.
    fn end_interval(&mut self, interval: Interval) {
        let Some(slot) = &mut self.slot else { return };
        for (other, judge) in &mut slot.judges {
            judge.end_interval(interval);
            self.due.insert(*other);
        }
    }
}

/// What the judges of the trial make of it so far.
fn judgement(slot: &Slot) -> Judgement {
    if slot.judges.values().any(|judge| judge.opinion() == Opinion::Open) {
        Judgement::Open
    } else {
        let confirming = slot.judges.iter().find_map(|(id, judge)| Some((*id, judge.confirmation()?)));
        confirming.map_or(Judgement::Allowed, |(id, evidence)| Judgement::Confirmed(id, evidence))
    }
}
