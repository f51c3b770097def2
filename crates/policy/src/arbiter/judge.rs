//! What another workload's trial of retention does to a workload, by the same blocks.

use std::time::Duration;

use crate::guard::{Interval, lost_share};
use crate::objective::{Comparison, ENOUGH_PAIRS};
use crate::progress::Block;
use crate::{Evidence, Policy, Purpose};

/// The fewest pairs by which new retention passes for helpful, or for harmless where nothing can be compared.
const MIN_PAIRS: usize = 2;
/// The fewest pairs by which a workload judges again.
const MIN_PAIRS_AGAIN: usize = ENOUGH_PAIRS as usize;

/// What a judge makes of the candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Opinion {
    /// More blocks are needed.
    Open,
    /// It does no harm.
    Harmless,
    /// It does.
    Harmful(Evidence),
}

/// What the workload thinks of the candidate before the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prior {
    /// Nothing yet.
    Unknown,
    /// It was found to do no harm.
    Harmless,
    /// It was found to help, which the workload proves again by trials of its own.
    Helps,
}

/// One workload's blocks in another workload's trial.
#[derive(Debug)]
pub(super) struct Judge {
    prior: Prior,
    baseline: Vec<Block>,
    candidate: Vec<Block>,
    /// What ends now, and its own interval with it.
    due: Option<Interval>,
    /// Its own interval did not start with the trial's.
    late: bool,
    opinion: Opinion,
    /// Evidence that retention that was found to help this workload does still.
    confirmation: Option<Evidence>,
}

impl Judge {
    pub(super) fn new(prior: Prior) -> Self {
        let (baseline, candidate) = (Vec::new(), Vec::new());
        let opinion = if prior == Prior::Helps { Opinion::Harmless } else { Opinion::Open };
        Self { prior, baseline, candidate, due: None, late: false, opinion, confirmation: None }
    }

    /// An interval of the trial has ended; the judge's must end, too.
    pub(super) fn end_interval(&mut self, interval: Interval) {
        // If it has missed the end of the last one, its own spans both.
        self.late |= self.due.is_some();
        self.due = Some(interval);
    }

    /// Whether the end of its interval is awaited.
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// The interval of the workload that `policy` controls has ended; returns its opinion so far.
    pub(super) fn observe(&mut self, block: Block, policy: &Policy) -> Opinion {
        let Some(interval) = self.due.take() else {
            self.late = true;
            return self.opinion;
        };
        match interval {
            _ if std::mem::take(&mut self.late) || block.workload.incomplete => return self.opinion,
            Interval::Candidate => self.candidate.push(block),
            Interval::Baseline => self.baseline.push(block),
            Interval::Settling => return self.opinion,
        }
        self.opinion = self.weigh(policy);
        self.opinion
    }

    /// Evidence that the candidate, which helped this workload before, helps it still.
    pub(super) fn confirmation(&self) -> Option<Evidence> {
        self.confirmation
    }

    /// The opinion so far.
    pub(super) fn opinion(&self) -> Opinion {
        self.opinion
    }

    /// New retention must be shown to do no harm, as far as anything can show it; of what was judged before, nothing may
    /// suggest harm.
    fn weigh(&mut self, policy: &Policy) -> Opinion {
        let (comparison, pairs) = self.compare(policy);
        let can_confirm = self.prior == Prior::Helps && pairs >= MIN_PAIRS_AGAIN;
        self.confirmation = comparison.proof(Purpose::Reprove).filter(|_| can_confirm);
        if let Some(evidence) = comparison.harm() {
            return Opinion::Harmful(evidence);
        }
        let harmless = match self.prior {
            Prior::Unknown => pairs >= MIN_PAIRS && comparison.is_harmless(),
            Prior::Harmless if comparison.shows_nothing() => pairs >= 1,
            Prior::Harmless => pairs >= MIN_PAIRS_AGAIN && comparison.seeming_harm().is_none(),
            Prior::Helps => comparison.seeming_harm().is_none(),
        };
        if harmless { Opinion::Harmless } else { Opinion::Open }
    }

    fn compare(&self, policy: &Policy) -> (Comparison, usize) {
        let pairs: Vec<_> = self.baseline.iter().copied().zip(self.candidate.iter().copied()).collect();
        (policy.compare(&pairs), pairs.len())
    }

    /// Evidence that the candidate helps this workload, too, or helps it still.
    pub(super) fn help(&self, policy: &Policy) -> Option<Evidence> {
        let (purpose, least) =
            if policy.claim().is_on() { (Purpose::Reprove, 1) } else { (Purpose::Adopt, MIN_PAIRS) };
        let (comparison, pairs) = self.compare(policy);
        comparison.proof(purpose).filter(|_| pairs >= least)
    }

    /// The progress (in seconds of work) that the candidate has cost this workload.
    pub(super) fn time_lost(&self, policy: &Policy) -> Duration {
        let purpose = if self.prior == Prior::Unknown { Purpose::Adopt } else { Purpose::Reprove };
        let (comparison, _) = self.compare(policy);
        let evidence = comparison.evidence().filter(|_| !comparison.is_harmless());
        let share = evidence.map_or(0.0, |e| lost_share(&e, purpose));
        self.candidate.iter().map(|block| block.period).sum::<Duration>().mul_f64(share)
    }
}
