//! The machine's retention: adopted if it helps one workload and harms none, and ended for all.

use std::time::Duration;

use super::judge::{Opinion, Prior};
use super::{Arbiter, Member, Slot, Stake};
use crate::guard::{Interval, Trial};
use crate::progress::Difference;
use crate::{
    CpuSet, Disturbance, Event, Evidence, Method, Observation, ReleaseReason, Retention, WorkloadId,
};

impl Member {
    /// Whether the machine's retention harms it, so that nobody tries it at `now`.
    pub(super) fn objects(&self, now: Duration) -> bool {
        self.stake == Some(Stake::Objects) && now < self.policy.retry_at()
    }

    /// What it thinks of the machine's retention.
    pub(super) fn prior(&self) -> Prior {
        match self.stake {
            _ if self.policy.claim().is_on() => Prior::Helps,
            Some(Stake::Tolerates) => Prior::Harmless,
            _ => Prior::Unknown,
        }
    }

    /// Whether a trial has shown that the machine's retention does not harm it.
    pub(super) fn has_judged(&self) -> bool {
        self.prior() != Prior::Unknown
    }
}

impl Arbiter {
    /// Whether the others, the time spent polling and the administrator allow `id` to retain.
    pub(super) fn may_retain(&self, id: WorkloadId) -> bool {
        let acts_on_machine = |method| matches!(method, Method::Halt | Method::Haltpoll | Method::QosPoll);
        let barred = |(other, m): (&WorkloadId, &Member)| {
            *other != id && (m.objects(self.now) || m.policy.bars_polling(self.now))
        };
        self.forbidden.is_none()
            && self.config.polling_share > 0.0
            && !self.polling.is_used_up()
            && self.members.get(&id).is_some_and(|m| acts_on_machine(m.policy.method()))
            && !self.members.iter().any(barred)
    }

    /// `id` has been observed, which judges the trial under way or does not.
    pub(super) fn judge(&mut self, id: WorkloadId, o: &Observation) {
        let Some(slot) = &mut self.slot else { return };
        if o.throttled > 0.0 {
            // Its quota decides how much it gets done.
            slot.judges.remove(&id);
        }
        let (Some(judge), Some(member)) = (slot.judges.get_mut(&id), self.members.get(&id)) else { return };
        let opinion = judge.observe(member.policy.block(o), &member.policy);
        if let Some(owner) = self.members.get_mut(&slot.owner) {
            owner.policy.add_sampled(o.cost);
        }
        if let Opinion::Harmful(evidence) = opinion
            && let Some(slot) = self.slot.take()
        {
            self.object(&slot, id, evidence);
        }
    }

    /// `id` has been observed, whose last block of the trial that its judges agreed to might have been missing.
    pub(super) fn judge_last(&mut self, id: WorkloadId, o: &Observation) {
        let Some(slot) = &mut self.agreed else { return };
        let proof = self.members.get(&slot.owner).map(|owner| owner.policy.proof());
        let (Some(judge), Some(member)) = (slot.judges.get_mut(&id), self.members.get_mut(&id)) else {
            return;
        };
        if !judge.is_due() {
            return;
        }
        let opinion = judge.observe(member.policy.block(o), &member.policy);
        let helps = judge.help(&member.policy);
        if let Some(evidence) = helps {
            member.evidence = Some(evidence);
            member.policy.helped(slot.candidate.retention, member.load, evidence, self.now);
        } else if let Opinion::Harmful(evidence) = opinion {
            if let Some(slot) = self.agreed.take() {
                self.object(&slot, id, evidence);
            }
            return;
        }
        // The retention is the machine's: one proof of it is enough, whoever leads it.
        let agrees = helps.is_some() || opinion == Opinion::Harmless;
        if let Some(proof) = proof.filter(|_| agrees && member.policy.claim().is_on()) {
            member.policy.spare_proof(&proof);
        }
    }

    /// The trial of `id` has ended after this `interval`, by the `events` of its step or without a verdict.
    pub(super) fn conclude(&mut self, id: WorkloadId, events: &[Event], interval: Interval) {
        let Some(slot) = self.slot.take() else { return };
        let verdict = events.iter().rev().find_map(|event| match event {
            Event::TrialEnded { verdict, .. } => Some(*verdict),
            _ => None,
        });
        let Some(member) = self.members.get_mut(&id) else { return };
        let goes_on = verdict.is_none() || member.policy.is_in_search();
        member.waiting = goes_on.then_some(slot.since);
        if slot.difference == Difference::ActiveSet {
            return;
        }
        let kept = verdict.is_some() && member.policy.claim().is_on();
        if let Some(verdict) = verdict {
            member.stake = Some(Stake::Tolerates);
            member.evidence = verdict.proof().or(member.evidence);
        }
        // Had it harmed a judge, it would have ended before.
        match verdict.and_then(|verdict| verdict.evidence()).filter(|e| !kept && e.is_harm()) {
            Some(evidence) => self.object(&slot, id, evidence),
            None if kept => self.agree(slot, interval),
            None => self.charge(&slot, id),
        }
    }

    /// The retention on trial is in force, and harms nobody. Whom it helps, too, shows with the last block.
    fn agree(&mut self, mut slot: Slot, interval: Interval) {
        for (id, judge) in &mut slot.judges {
            judge.end_interval(interval);
            self.due.insert(*id);
        }
        // Also who could not judge: nobody waits for it.
        self.members.values_mut().for_each(|member| member.stake = Some(Stake::Tolerates));
        self.agreed = Some(slot);
    }

    /// The retention on trial harms the workload `by`: it ends for all, and nobody tries it before this one would.
    fn object(&mut self, slot: &Slot, by: WorkloadId, evidence: Evidence) {
        let retention = slot.candidate.retention;
        self.charge(slot, by);
        let judge = slot.judges.get(&by);
        for id in judge.iter().flat_map(|_| [by, slot.owner]) {
            if let Some(member) = self.members.get_mut(&id) {
                member.events.push(Event::Objected { by, retention, evidence });
                let lost = member.policy.trial().map(Trial::time_lost);
                member.policy.charge(lost.unwrap_or_default(), self.now);
            }
        }
        self.end_polling(ReleaseReason::Objection { by, evidence });
        let Some(member) = self.members.get_mut(&by) else { return };
        member.stake = Some(Stake::Objects);
        if let Some(judge) = judge {
            let lost = judge.time_lost(&member.policy);
            member.policy.harmed(retention, lost, self.now);
        }
    }

    /// The trial's judges, but for one, pay what it has cost them.
    fn charge(&mut self, slot: &Slot, but: WorkloadId) {
        for (id, judge) in slot.judges.iter().filter(|(id, _)| **id != but) {
            if let Some(member) = self.members.get_mut(id) {
                let lost = judge.time_lost(&member.policy);
                member.policy.charge(lost, self.now);
            }
        }
    }

    /// Ends the machine's retention, in and out of trials.
    pub(super) fn end_polling(&mut self, why: ReleaseReason) {
        for member in self.members.values_mut() {
            let ended = member.policy.end_polling(why, self.now, &mut member.events);
            if std::mem::take(&mut member.shared) && !ended {
                member.events.push(Event::Released { why });
            }
        }
        let owner = self.slot.as_ref().map(|slot| slot.owner);
        if let Some(id) = owner
            && self.members.get(&id).is_some_and(|m| m.policy.trial().is_none())
        {
            self.conclude(id, &[], Interval::Settling);
        }
        self.agreed = None;
    }

    /// Ends polling if the step of `id` shows that somebody else wants the pCPUs, or if the vCPUs polled for too long.
    pub(super) fn check_polling(&mut self, id: WorkloadId) {
        if let Some(veto) = self.members.get(&id).and_then(|m| m.policy.contention()) {
            self.end_polling(ReleaseReason::Veto(veto));
        }
        let (share, most) = (self.polling_share(), self.config.polling_share);
        self.polling.check(self.config.vcpus.len(), most);
        if self.polling.is_used_up() && (self.retention.is_on() || self.current_retention().is_on()) {
            self.end_polling(ReleaseReason::PollingShare { share, most });
        }
    }

    /// The other workload `by`, whose active vCPUs were `from`, might have changed them during the trial: then blocks of
    /// retention, which it judges, or blocks on these vCPUs say nothing.
    pub(super) fn follow_set(&mut self, by: WorkloadId, from: CpuSet) {
        let Some(to) = self.members.get(&by).map(|m| m.policy.setting().active) else { return };
        let Some(slot) = self.slot.as_ref().filter(|slot| slot.owner != by && from != to) else { return };
        let concerns = |set: &CpuSet| {
            [from.difference(&to), to.difference(&from)].iter().any(|c| !c.intersection(set).is_empty())
        };
        let trial = self.members.get(&slot.owner).and_then(|m| m.policy.trial());
        let on_them =
            trial.is_some_and(|t| concerns(&t.baseline().active) || concerns(&t.candidate().active));
        if slot.difference == Difference::Retention || on_them {
            self.abandon(Disturbance::Set { by, from, to });
        }
    }

    /// `id` needs retention from now on, or `needed` it already. What it knows to pay does not wait for another workload's
    /// trial of the same.
    pub(super) fn follow_claim(&mut self, id: WorkloadId, needed: bool) {
        let Some(to) = self.members.get(&id).map(|m| m.policy.claim()) else { return };
        let foreign = self.slot.as_ref().is_some_and(|slot| slot.owner != id);
        if foreign && !needed && to.is_on() {
            self.abandon(Disturbance::Retention { from: self.retention, to });
        }
    }

    /// Ends the trial under way without a verdict.
    fn abandon(&mut self, why: Disturbance) {
        let Some(slot) = &self.slot else { return };
        let (id, candidate) = (slot.owner, slot.candidate.clone());
        if let Some(owner) = self.members.get_mut(&id) {
            owner.policy.abandon_trial(self.now);
            owner.events.push(Event::TrialAbandoned { candidate, why });
        }
        self.conclude(id, &[], Interval::Settling);
    }

    /// What is retained now: by the trial's block, else the largest limit that any of those that it helps needs.
    fn current_retention(&self) -> Retention {
        let slot = self.slot.as_ref().filter(|slot| slot.difference == Difference::Retention);
        let trial = slot.and_then(|slot| self.members.get(&slot.owner)?.policy.trial());
        let claims = || self.members.values().map(|m| m.policy.claim());
        trial.map_or_else(|| claims().fold(Retention::NONE, Retention::stronger), |t| t.setting().retention)
    }

    /// Puts what the workloads need in force.
    pub(super) fn update_retention(&mut self) {
        let (from, to) = (self.retention, self.current_retention());
        if to != from {
            for (id, member) in &mut self.members {
                if self.done.contains(id) {
                    member.in_force = to;
                } else {
                    self.due.insert(*id);
                }
            }
            self.retention = to;
            let tried = self.slot.as_ref().is_some_and(|slot| slot.difference == Difference::Retention);
            self.has_ended = from.is_on() && !to.is_on() && !tried;
            // Blocks of a smaller set under different retention are not comparable.
            let of_set = self.slot.as_ref().filter(|slot| slot.difference == Difference::ActiveSet);
            if of_set.is_some_and(|slot| slot.candidate.retention != to) {
                self.abandon(Disturbance::Retention { from, to });
            }
        }
        self.announce();
    }

    /// Lets the workloads that it does not help know what is in force, and has it proven where one has not judged it.
    pub(super) fn announce(&mut self) {
        let retention = self.retention;
        if self.slot.as_ref().is_some_and(|slot| slot.difference == Difference::Retention) {
            return;
        }
        let needs = |m: &Member| m.policy.claim().is_on();
        let helps = self.members.iter().find(|(_, m)| needs(m)).map(|(id, m)| (*id, m.evidence));
        for member in self.members.values_mut() {
            match helps {
                _ if needs(member) => member.shared = false,
                Some((helps, evidence)) if !member.shared => {
                    member.shared = true;
                    member.events.push(Event::Shared { retention, helps, evidence });
                }
                None if member.shared => {
                    member.shared = false;
                    member.events.push(Event::Released { why: ReleaseReason::Unneeded });
                }
                _ => {}
            }
        }
        let unproven = helps.is_some() && !self.members.values().all(Member::has_judged);
        let helped = helps.filter(|_| unproven && !self.asked);
        if let Some(member) = helped.and_then(|(id, _)| self.members.get_mut(&id)) {
            member.policy.prove_retention_soon(self.now);
        }
        self.asked = unproven;
    }
}
