//! The guard: every change is a hypothesis that must prove itself in alternating blocks, or is undone.
//!
//! A [`Trial`] runs baseline and candidate in the order B C C B B C C B …, so that a drift affects both alike,
//! and stops as soon as the evidence decides: after two pairs if the gain is large, three if the loss is, after
//! seconds if the effect is small or a neighbour is noisy. A trial of new retention starts with its baseline, B
//! B B C C C, since vCPUs that have started to poll stop only when they halt. Later proofs do not wait for that
//! at first: what beats a baseline that still polls here and there beats one that does not.
//!
//! The workload adapts to a change more slowly than the machine: threads that queue for a lock still queue for
//! a while after wake-ups have become cheap. So retention whose blocks still improve, or have not recovered
//! from the disturbance of a proof, stays in force for a few more blocks before the verdict.

mod block;
mod settling;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::VecDeque;
use std::time::Duration;

use crate::budget::LARGEST_TRIAL_LOSS;
use crate::evidence::{ERROR_RATE, Evidence};
use crate::noise::Noise;
use crate::objective::{Comparison, ENOUGH_PAIRS, Standard};
use crate::progress::{Block, Difference, Signal, is_mostly_idle};
use crate::{Observation, Setting};
pub use block::block_lengths;
pub(crate) use block::block_of;
use block::{USER_TIME_BLOCK, block_length};
pub(crate) use settling::has_room;
use settling::{SETTLING_TIMEOUT, Settling};
pub use verdict::{Purpose, Verdict};

/// The first moments after a change are not measured: threads migrate, poll limits grow.
const SETTLING_TIME: Duration = Duration::from_millis(2);
/// The number of blocks of each side with which a trial of new retention starts.
const SEQUENTIAL_PAIRS: usize = 3;
/// [`ENOUGH_PAIRS`].
const PAIRS_AGAINST: usize = ENOUGH_PAIRS as usize;
/// A change whose effect has not shown after this time is not worth having.
const LONGEST_TRIAL: Duration = Duration::from_secs(8);
/// What is proven waits no longer than this for the judgement of other workloads: harm that has not shown by then has to
/// show in later proofs.
const LONGEST_JUDGEMENT: Duration = Duration::from_secs(2);
/// The share of progress that a candidate is assumed to lose until CPU time, which hides the losses of a lock
/// convoy, shows a gain.
const HIDDEN_LOSS: f64 = 0.25;
/// How often retention whose effect is still growing gets more blocks.
const SETTLING_ROUNDS: u32 = 2;
/// The ratio of two blocks that counts as growth, or as a shortfall against the time before the trial, and not
/// as noise.
const GROWTH_RATIO: f64 = 1.5;
/// If the candidate loses more than this share of the workload's CPU time, longer blocks are too risky.
const MAX_WORK_LOST: f64 = 0.2;

/// An interval of a trial: a block of one of its sides, or the time before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interval {
    Settling,
    Baseline,
    Candidate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Baseline,
    Candidate,
}

/// The share of progress (0..=1) that a candidate is assumed to have cost while it was in force. A new one can lose more
/// than CPU time shows.
pub(crate) fn lost_share(e: &Evidence, purpose: Purpose) -> f64 {
    let hidden = purpose == Purpose::Adopt && e.signal == Signal::WorkTime && !e.seems_better();
    f64::max(1.0 - e.ratio, if hidden { HIDDEN_LOSS } else { 0.0 })
}

/// One hypothesis under test.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    baseline: Setting,
    candidate: Setting,
    purpose: Purpose,
    block: Duration,
    side: Side,
    /// Whether all baseline blocks come before the candidate's.
    sequential: bool,
    settling: Settling,
    /// Blocks of the side that is ahead, oldest first, waiting for their partners.
    ahead: VecDeque<Block>,
    /// The pairs measured so far, (baseline, candidate).
    pairs: Vec<(Block, Block)>,
    /// The workload before the trial.
    before: Block,
    settling_rounds: u32,
    /// Time since the trial started.
    elapsed: Duration,
    /// The evidence so far.
    evidence: Option<Evidence>,
    /// The waker's share of waking a halted vCPU.
    waker_cost: Duration,
    /// What the blocks are judged by.
    standard: Standard,
    /// CPU time of the observation before the trial.
    cost: Duration,
    /// CPU time of the trial's observations.
    sampled: Duration,
    /// Time for which the candidate has been in force.
    candidate_for: Duration,
    /// Sum and number of the logarithms of the runnable threads at the ends of the candidate's blocks.
    runnable: (f64, u32),
}

impl Trial {
    /// A trial of `candidate` against `baseline`. `seen` is the latest observation: the block length depends on
    /// what the workload did in it and on its cost.
    pub(crate) fn new(baseline: Setting, candidate: Setting, purpose: Purpose, seen: &Observation) -> Self {
        let before = Block {
            period: seen.period,
            workload: seen.workload,
            waking: Duration::ZERO,
            polled: Duration::ZERO,
        };
        let sequential = purpose == Purpose::Adopt && baseline.active == candidate.active;
        let block = block_length(&before, seen.cost);
        Self {
            baseline,
            candidate,
            purpose,
            block,
            side: if purpose == Purpose::Adopt && !sequential { Side::Candidate } else { Side::Baseline },
            sequential,
            // A sequential trial starts with the setting in force, once that has settled after an earlier trial.
            settling: Settling::new(purpose, block, !sequential || !seen.settled),
            ahead: VecDeque::new(),
            pairs: Vec::new(),
            before,
            settling_rounds: 0,
            elapsed: Duration::ZERO,
            evidence: None,
            waker_cost: Duration::ZERO,
            standard: Standard::at_price(0.0),
            cost: seen.cost,
            sampled: Duration::ZERO,
            candidate_for: Duration::ZERO,
            runnable: (0.0, 0),
        }
    }

    /// Makes blocks at least `length` long, for a progress counter that is slow to read.
    #[must_use]
    pub(crate) fn with_block(mut self, length: Duration) -> Self {
        self.block = self.block.max(length);
        self
    }

    /// Other workloads judge the same blocks, at this `cost` of CPU time per block. A block that has not settled would
    /// hide harm from those that have not judged the retention before, if there are such (`open`).
    #[must_use]
    pub(crate) fn with_judges(mut self, cost: Duration, open: bool) -> Self {
        self.block = self.block.max(block_length(&self.before, self.cost + cost));
        if open {
            self.settling.without_timeout();
        }
        self
    }

    /// Sets the waker's CPU time per wake-up of a halted vCPU, and what a microsecond of polling costs in
    /// microseconds of waiting.
    #[must_use]
    pub(crate) fn with_costs(mut self, waker_cost: Duration, poll_price: f64) -> Self {
        (self.waker_cost, self.standard.poll_price) = (waker_cost, poll_price);
        self
    }

    /// Allows only this share (0..=1) of the usual error, because the same was tried before and not proven.
    #[must_use]
    pub(crate) fn with_error_share(mut self, share: f64) -> Self {
        self.standard.error = ERROR_RATE * share;
        self
    }

    /// The setting without the change.
    pub(crate) fn baseline(&self) -> &Setting {
        &self.baseline
    }

    /// The setting with the change.
    pub(crate) fn candidate(&self) -> &Setting {
        &self.candidate
    }

    /// Why the trial is run.
    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Time since the trial started.
    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// CPU time that the trial's observations took.
    pub(crate) fn sampled(&self) -> Duration {
        self.sampled
    }

    /// Adds the CPU time of a judge's observation.
    pub(crate) fn add_sampled(&mut self, cost: Duration) {
        self.sampled += cost;
    }

    /// What the interval is that has started.
    pub(crate) fn interval(&self) -> Interval {
        match self.side {
            _ if self.settling.is_waiting() => Interval::Settling,
            Side::Baseline => Interval::Baseline,
            Side::Candidate => Interval::Candidate,
        }
    }

    /// The number of runnable threads under the candidate: the geometric mean over its blocks, so that load
    /// that arrives in the last one counts little; rounded up, 0 before the first.
    pub(crate) fn candidate_runnable(&self) -> u32 {
        let (logarithms, blocks) = self.runnable;
        // `exp(ln(n))` can be slightly larger than n.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of u32 is one")]
        if blocks == 0 { 0 } else { ((logarithms / f64::from(blocks)).exp() - 1e-6).ceil() as u32 }
    }

    /// The progress that the candidate has cost so far, in seconds of work; zero if it lost none or nothing was
    /// measured.
    pub(crate) fn time_lost(&self) -> Duration {
        let lost = match self.evidence {
            Some(e) => lost_share(&e, self.purpose),
            None if self.pairs.is_empty() => 0.0,
            None => self.work_lost(),
        };
        self.candidate_for.mul_f64(lost.clamp(0.0, 1.0))
    }

    /// The setting for the present block.
    pub(crate) fn setting(&self) -> &Setting {
        match self.side {
            Side::Baseline => &self.baseline,
            Side::Candidate => &self.candidate,
        }
    }

    /// Time until the next observation; while a setting takes long to settle, ever longer.
    pub(crate) fn next(&self) -> Duration {
        if self.settling.is_waiting() { self.settling.next().max(self.cost * 10) } else { self.block }
    }

    /// What the two settings differ in.
    pub(crate) fn difference(&self) -> Difference {
        if self.baseline.active == self.candidate.active {
            Difference::Retention
        } else {
            Difference::ActiveSet
        }
    }

    /// Takes the observation that [`Trial::next`] scheduled. A verdict ends the trial. A proof does not while the
    /// judgement of other workloads is `open`.
    pub(crate) fn observe(&mut self, o: &Observation, noise: &Noise, open: bool) -> Option<Verdict> {
        self.elapsed += o.period;
        self.sampled += o.cost;
        if self.side == Side::Candidate {
            self.candidate_for += o.period;
        }
        if self.settling.is_waiting() {
            let in_time = self.settling.observe(o);
            return (!in_time).then_some(Verdict::Undecided(self.evidence));
        }
        let block = block_of(o, &self.setting().active, self.waker_cost);
        if self.side == Side::Candidate {
            self.runnable.0 += f64::from(o.runnable.max(1)).ln();
            self.runnable.1 += 1;
        }
        let partner = if self.leads() { None } else { self.ahead.pop_front() };
        let Some(partner) = partner else {
            self.ahead.push_back(block);
            if !self.sequential || self.ahead.len() == SEQUENTIAL_PAIRS {
                self.change_side();
            }
            return None;
        };
        // In an alternating trial the next pair starts with the side in force, which needs no settling.
        self.pairs.push(match self.side {
            Side::Candidate => (partner, block),
            Side::Baseline => (block, partner),
        });
        let verdict = self.verdict(noise);
        let waits = open && self.elapsed <= LONGEST_JUDGEMENT;
        let verdict = verdict.filter(|verdict| !(waits && verdict.proof().is_some()));
        // The last of the leading baseline blocks has its partner.
        let all_paired = self.sequential && self.ahead.is_empty();
        match verdict {
            Some(proven @ Verdict::Proven(_)) => return Some(proven),
            // The next baseline can have settled.
            None if self.settling.is_doubtful() && self.pairs.len() < PAIRS_AGAINST => {}
            _ if self.settling.is_doubtful() && self.elapsed > SETTLING_TIMEOUT => {
                return Some(Verdict::Undecided(None));
            }
            _ if self.settling.is_doubtful() => self.start_over(),
            Some(_) if self.workload_is_settling() => self.let_workload_settle(),
            None if all_paired && self.workload_is_settling() => self.let_workload_settle(),
            None if all_paired => self.sequential = false,
            verdict => return verdict,
        }
        None
    }

    /// The verdict on retention in force that the same blocks have proven to another workload again: it stays, unless this one
    /// seems to lose by it. `None` while that is open.
    pub(crate) fn verdict_if_confirmed(&self) -> Option<Verdict> {
        let again = self.purpose == Purpose::Reprove && self.difference() == Difference::Retention;
        let enough = self.pairs.len() >= PAIRS_AGAINST && self.ahead.is_empty();
        let unhurt = self.evidence.map_or(!self.loses_work(), |e| e.ratio >= 1.0);
        (again && enough && unhurt).then_some(Verdict::Undecided(self.evidence))
    }

    /// Whether the trial has used up its budget.
    fn costs_too_much(&self) -> bool {
        self.pairs.len() >= PAIRS_AGAINST && self.time_lost() > LARGEST_TRIAL_LOSS
    }

    /// Whether the effect of retention is still growing, so that any verdict but a proof would come too early.
    fn workload_is_settling(&self) -> bool {
        let Some(Evidence { signal, .. }) = self.evidence else { return false };
        if self.difference() != Difference::Retention || self.settling_rounds == SETTLING_ROUNDS {
            return false;
        }
        let rate = |b: &Block| signal.per_second(b).unwrap_or(0.0);
        let (Some((_, first)), Some((baseline, last))) = (self.pairs.first(), self.pairs.last()) else {
            return false;
        };
        match self.purpose {
            // Worse than the baseline but improving in the last block is noise.
            Purpose::Adopt => rate(last) > GROWTH_RATIO * f64::max(rate(first), rate(baseline)),
            Purpose::Reprove => rate(&self.before) > GROWTH_RATIO * rate(last),
        }
    }

    /// Measures the candidate again, without leaving it, against the latest blocks of the baseline.
    fn let_workload_settle(&mut self) {
        self.settling_rounds += 1;
        self.sequential = true;
        let latest = self.pairs.len().saturating_sub(SEQUENTIAL_PAIRS);
        let measured = self.pairs.drain(..).skip(latest).map(|(baseline, _)| baseline);
        // One block is unpaired if a sequential trial ended early.
        self.ahead = measured.chain(std::mem::take(&mut self.ahead)).collect();
        if self.side == Side::Baseline {
            self.change_side();
        }
    }

    /// Starts over, now that not waiting has proven nothing.
    fn start_over(&mut self) {
        self.settling.start_over();
        self.pairs.clear();
        self.evidence = None;
        self.side = Side::Candidate;
        self.change_side();
    }

    /// Whether blocks of the present side wait for partners from the other side.
    fn leads(&self) -> bool {
        self.ahead.is_empty() || (self.sequential && self.side == Side::Baseline)
    }

    fn change_side(&mut self) {
        self.side = self.side.other();
        self.settling.start();
    }

    /// Whether the machine must reset its poll limits now. To be called once per step.
    pub(crate) fn wants_reset(&mut self) -> bool {
        let Self { settling, side, baseline, candidate, .. } = self;
        settling.wants_reset(&if *side == Side::Baseline { baseline } else { candidate }.active)
    }

    fn verdict(&mut self, noise: &Noise) -> Option<Verdict> {
        let comparison = Comparison::of(&self.pairs, self.difference(), noise, self.standard);
        self.evidence = comparison.evidence();
        let n = self.pairs.len();
        let to_prove = match self.purpose {
            Purpose::Adopt => 2,
            Purpose::Reprove => 1,
        };
        if let Some(e) = comparison.proof(self.purpose).filter(|_| n >= to_prove) {
            return Some(Verdict::Proven(e));
        }
        if let Some(e) = comparison.refutation().filter(|_| n >= PAIRS_AGAINST) {
            return Some(Verdict::Refuted(e));
        }
        match self.evidence {
            Some(e) if self.elapsed > LONGEST_TRIAL || self.costs_too_much() || comparison.is_futile() => {
                Some(Verdict::Undecided(Some(e)))
            }
            // Without an exact signal, a change of the active set needs the coarse signal's longer blocks.
            None if self.block < USER_TIME_BLOCK && self.difference() == Difference::ActiveSet => {
                if self.loses_work() {
                    return Some(Verdict::Undecided(None));
                }
                self.block = USER_TIME_BLOCK;
                self.pairs.clear();
                None
            }
            None if n >= 2 => Some(Verdict::Undecided(None)),
            _ => None,
        }
    }

    /// Whether the candidate, where no signal can judge it, loses so much of the workload's CPU time that it must not
    /// stay. A smaller set on which the threads hand over as often loses the time of waking; pieces of work of less than
    /// half the length are not the same work (paper §5, major changes).
    pub(crate) fn loses_work(&self) -> bool {
        let kept = 1.0 - self.work_lost();
        let hand_offs = self.ratio_of(|b| b.workload.switches as f64);
        let same_work = self.difference() == Difference::ActiveSet && (1.0..=2.0 * kept).contains(&hand_offs);
        !self.pairs.is_empty() && kept < 1.0 - MAX_WORK_LOST && !same_work
    }

    /// Share of the workload's CPU time that the candidate lost against the baseline. What polling saves in waking is none.
    fn work_lost(&self) -> f64 {
        if self.difference() == Difference::Retention && is_mostly_idle(&self.pairs) {
            return 0.0;
        }
        1.0 - self.ratio_of(|b| b.workload.cpu_time.as_secs_f64())
    }

    /// What the candidate has of an amount per second, relative to the baseline.
    fn ratio_of(&self, amount: impl Fn(&Block) -> f64) -> f64 {
        let rate = |side: fn(&(Block, Block)) -> &Block| {
            let add = |(a, p), b: &Block| (a + amount(b), p + b.period.as_secs_f64());
            let (amount, period) = self.pairs.iter().map(side).fold((0.0, 0.0), add);
            amount / f64::max(period, f64::MIN_POSITIVE)
        };
        rate(|p| &p.1) / f64::max(rate(|p| &p.0), f64::MIN_POSITIVE)
    }
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Baseline => Self::Candidate,
            Self::Candidate => Self::Baseline,
        }
    }
}
