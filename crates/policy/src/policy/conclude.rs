//! What follows from a verdict: what stays in force, what is known from now on, and when it is tried or proven again.

use super::{Cadence, Duration, Event, Observation, PROOF_DELAY, Policy, Purpose, Trial, Verdict};
use crate::consolidation::Finding;
use crate::{AfterRollBack, KnownVcpus, Refutation, Retention};

/// The share of the time until the next proof that a proof may lose: the baseline, which does without the gain, is in
/// force for half of it.
const PROOF_LOSS_SHARE: f64 = 0.04;
/// A smaller set with at least this share of the baseline's progress did no harm.
const HARMLESS_RATIO: f64 = 0.95;
/// An unproven candidate with at least this ratio is tried again sooner.
const RETRY_RATIO: f64 = 1.1;

impl Policy {
    /// Keeps or drops the retention tried; returns when the same can be tried again.
    pub(super) fn conclude_retention(
        &mut self,
        trial: &Trial,
        keep: bool,
        verdict: &Verdict,
        o: &Observation,
    ) -> Duration {
        let now = o.at;
        self.consolidation.record_again();
        if keep {
            if trial.purpose() == Purpose::Adopt {
                self.retention = trial.candidate().retention;
            }
            self.memory.kept(self.retention, verdict.proof());
            self.postpone_proof(trial, verdict, now);
            self.retry_retention.shorten(now);
            return self.proof.until();
        }
        self.retention = Retention::NONE;
        let refuted = matches!(verdict, Verdict::Refuted(_));
        self.memory.dropped(trial.candidate().retention, trial.purpose() == Purpose::Reprove, refuted, now);
        // A program that has just started changes from block to block.
        match verdict {
            Verdict::Undecided(Some(e)) if e.ratio > RETRY_RATIO => self.retry_retention.extend_briefly(now),
            _ => self.retry_retention.extend(now),
        }
        self.retry_retention.not_before(self.budget.spend(trial.time_lost(), now));
        self.retry_retention.not_before(now + Cadence::pause_after(trial.elapsed(), trial.sampled()));
        self.hasten_proof(trial.purpose(), now);
        self.retry_retention.until()
    }

    /// Keeps or drops the consolidation step tried; returns when the same can be tried again.
    pub(super) fn conclude_active_set(
        &mut self,
        trial: &Trial,
        keep: bool,
        verdict: &Verdict,
        o: &Observation,
        events: &mut Vec<Event>,
    ) -> Duration {
        let tried = trial.baseline().active.difference(&trial.candidate().active);
        if keep {
            if trial.purpose() == Purpose::Adopt {
                self.inactive.push(tried);
                self.consolidation.approve();
                let active = self.active();
                self.overload.proven_with(trial.candidate_runnable(), &active);
            }
            if let Some(evidence) = verdict.proof() {
                let (active, runnable) = (trial.candidate().active.len(), trial.candidate_runnable());
                self.memory.kept_vcpus(KnownVcpus { active, runnable, evidence });
            }
            self.postpone_proof(trial, verdict, o.at);
            self.retry_consolidation.shorten(o.at);
            return self.proof.until();
        }
        self.inactive.retain(|step| *step != tried);
        if trial.purpose() == Purpose::Reprove {
            self.memory.dropped_vcpus(self.active().len());
        }
        let finding = match verdict.evidence() {
            Some(e) if e.ratio > HARMLESS_RATIO => Finding::NoGain,
            _ => Finding::Harm,
        };
        let then = self.consolidation.reject(finding);
        if let Some(then) = then {
            events.push(Event::RolledBack { active: self.active(), refutation: Refutation::Guard, then });
        }
        let goes_on = matches!(then, Some(AfterRollBack::GoesOn { .. }));
        if !goes_on {
            if self.inactive.is_empty() {
                self.memory.refuted_vcpus();
            }
            self.retry_consolidation.extend(o.at);
            let pause = Cadence::pause_after(trial.elapsed(), trial.sampled());
            self.retry_consolidation.not_before(o.at + pause);
        }
        self.retry_consolidation.not_before(self.budget.spend(trial.time_lost(), o.at));
        self.hasten_proof(trial.purpose(), o.at);
        if goes_on { self.retry_consolidation.until() } else { self.search_again_at() }
    }

    /// Postpones the next proof by what this one has lost for certain, see [`PROOF_LOSS_SHARE`], but not for so long that harm
    /// stays unnoticed.
    fn postpone_proof(&mut self, trial: &Trial, verdict: &Verdict, now: Duration) {
        self.proof.extend(now);
        self.proof.not_before(now + Cadence::pause_after(trial.elapsed(), trial.sampled()));
        if trial.purpose() == Purpose::Reprove
            && let Some(e) = verdict.evidence()
        {
            let gain = 1.0 - 1.0 / e.low.max(1.0);
            let pause = trial.elapsed().mul_f64(gain / 2.0 / PROOF_LOSS_SHARE);
            self.proof.not_before(now + pause.min(PROOF_DELAY.1));
        }
    }

    /// A proven setting failed: everything else that was proven must be proven again soon. A new candidate that
    /// fails says nothing about the setting in force.
    fn hasten_proof(&mut self, purpose: Purpose, now: Duration) {
        if purpose == Purpose::Reprove {
            self.proof.shorten(now);
        }
    }
}
