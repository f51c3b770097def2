//! What another workload's trial of retention does to a workload, by the same blocks.

use std::time::Duration;

use crate::guard::{Interval, lost_share};
use crate::progress::Block;
use crate::{Evidence, Policy, Purpose};

/// The fewest pairs by which nothing to compare passes for no harm.
const MIN_PAIRS: usize = 2;

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

/// One workload's blocks in another workload's trial.
#[derive(Debug)]
pub(super) struct Judge {
    /// Whether it has judged this retention harmless before.
    judged: bool,
    baseline: Vec<Block>,
    candidate: Vec<Block>,
    /// What ends now, and its own interval with it.
    due: Option<Interval>,
    /// Its own interval did not start with the trial's.
    late: bool,
}

impl Judge {
    pub(super) fn new(judged: bool) -> Self {
        Self { judged, baseline: Vec::new(), candidate: Vec::new(), due: None, late: false }
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

    /// The judge's interval has ended.
    pub(super) fn observe(&mut self, block: Block) {
        let Some(interval) = self.due.take() else {
            self.late = true;
            return;
        };
        match interval {
            _ if std::mem::take(&mut self.late) => {}
            Interval::Candidate => self.candidate.push(block),
            Interval::Baseline => self.baseline.push(block),
            Interval::Settling => {}
        }
    }

    fn pairs(&self) -> Vec<(Block, Block)> {
        self.baseline.iter().copied().zip(self.candidate.iter().copied()).collect()
    }

    /// The opinion so far of the workload that `policy` controls. New retention must be shown to do no harm, as far as
    /// anything can show it; of what was judged before, nothing may suggest harm.
    pub(super) fn opinion(&self, policy: &Policy) -> Opinion {
        let pairs = self.pairs();
        let comparison = policy.compare(&pairs);
        if let Some(evidence) = comparison.harm() {
            return Opinion::Harmful(evidence);
        }
        let harmless = if self.judged {
            comparison.seeming_harm().is_none()
        } else {
            pairs.len() >= MIN_PAIRS && comparison.is_harmless()
        };
        if harmless { Opinion::Harmless } else { Opinion::Open }
    }

    /// The opinion at the end of the trial, where the estimate decides.
    pub(super) fn last_opinion(&self, policy: &Policy) -> Opinion {
        match self.opinion(policy) {
            Opinion::Open => {
                policy.compare(&self.pairs()).seeming_harm().map_or(Opinion::Harmless, Opinion::Harmful)
            }
            decided => decided,
        }
    }

    /// Evidence that the candidate helps this workload, too, or helps it still.
    pub(super) fn help(&self, policy: &Policy) -> Option<Evidence> {
        let (purpose, least) =
            if policy.claim().is_on() { (Purpose::Reprove, 1) } else { (Purpose::Adopt, MIN_PAIRS) };
        let pairs = self.pairs();
        policy.compare(&pairs).proof(purpose).filter(|_| pairs.len() >= least)
    }

    /// The progress (in seconds of work) that the candidate has cost this workload.
    pub(super) fn time_lost(&self, policy: &Policy) -> Duration {
        let purpose = if self.judged { Purpose::Reprove } else { Purpose::Adopt };
        let comparison = policy.compare(&self.pairs());
        let evidence = comparison.evidence().filter(|_| !comparison.is_harmless());
        let share = evidence.map_or(0.0, |e| lost_share(&e, purpose));
        self.candidate.iter().map(|block| block.period).sum::<Duration>().mul_f64(share)
    }
}
