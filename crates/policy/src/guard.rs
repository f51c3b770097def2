//! The guard: every change is a hypothesis that must prove itself in alternating blocks, or is undone.
//!
//! A [`Trial`] runs baseline and candidate in the order B C C B B C C B …, so that a drift hits both alike,
//! and stops as soon as the evidence decides: after two pairs where the effect is large, after seconds where it is small
//! or a neighbour shakes the machine. New retention begins with its baseline, B B B C C C, since vCPUs that have begun
//! to poll stop it only when they halt. Its proofs later do not wait for that at first: what is better than a baseline
//! that still polls here and there is better than one that does not.
//!
//! The workload follows a change later than the machine does: threads that queue for a lock go on queueing for a while
//! after wake-ups have become cheap. Retention whose blocks still rise, or are not yet what they were before a proof
//! disturbed them, stays in force for a few more before it is judged.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::budget::A_TRIAL;
use crate::consolidation::scale;
use crate::evidence::Evidence;
use crate::noise::Noise;
use crate::objective::Comparison;
use crate::progress::{Block, Difference, Signal};
use crate::{Observation, Setting};

/// After a change the first moments belong to neither setting: threads migrate, poll limits grow.
const SETTLE: Duration = Duration::from_millis(2);
/// How long a trial waits for the machine to follow a change by itself. Then the vCPUs' poll limits are reset: where
/// some have halted and others have not, each wake-up of the former is slow already.
const PATIENCE: Duration = Duration::from_millis(4);
/// Where that is in vain (others run there too), it waits for halts by themselves, but no longer than this.
const GIVE_UP: Duration = Duration::from_millis(300);
/// A trial of new retention begins with this many blocks of each side.
const SEQUENTIAL_PAIRS: usize = 3;
/// What was proven before is not refuted by fewer pairs: one block of ten milliseconds may be a lucky one, in which
/// waker and wakee shared a vCPU.
const PAIRS_AGAINST_PROVEN: usize = 3;
/// A block must see this many hand-offs for its counts to be worth comparing.
const SWITCHES_PER_BLOCK: f64 = 200.0;
/// A block is at least this long: well above the wake-up of the observer itself.
const SHORTEST_BLOCK: Duration = Duration::from_millis(10);
/// It is made longer for an exact signal to have enough, but not than this.
const LONG_ENOUGH: Duration = Duration::from_millis(40);
/// And at most this long: what a bad candidate may cost in one go.
const LONGEST_BLOCK: Duration = Duration::from_millis(120);
/// Blocks for the coarse user-time signal: 25 to 120 ticks each.
const LONG_BLOCK: Duration = Duration::from_millis(100);
/// A change whose effect has not shown after this long is not worth having.
const LONGEST_TRIAL: Duration = Duration::from_secs(8);
/// The share of progress that a candidate is taken to lose while CPU time, which hides what a lock convoy loses, does not
/// speak for it.
const HIDDEN_LOSS: f64 = 0.25;
/// Retention whose effect is still growing is given so many blocks again, at most this often.
const LINGERS: u32 = 2;
/// Growth between blocks that may not be noise, and a shortfall against the time before the trial that may not be.
const STILL_GROWING: f64 = 1.5;
/// Where the candidate loses more than this share of the workload's CPU time, no longer blocks are risked.
const TOO_MUCH_LOST: f64 = 0.2;

/// Why a trial is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The candidate is new.
    Adopt,
    /// The candidate is in force and must prove itself again.
    Reprove,
}

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The candidate is better, by this evidence.
    Proven(Evidence),
    /// The candidate is not better by the margin.
    Refuted(Evidence),
    /// The blocks could not decide; the best evidence there was, if any.
    Undecided(Option<Evidence>),
}

impl Verdict {
    /// The numbers behind the verdict.
    pub fn evidence(&self) -> Option<Evidence> {
        match *self {
            Self::Proven(e) | Self::Refuted(e) => Some(e),
            Self::Undecided(e) => e,
        }
    }

    /// The numbers that proved the candidate; `None` where it was not proven.
    pub(crate) fn proof(&self) -> Option<Evidence> {
        match *self {
            Self::Proven(e) => Some(e),
            Self::Refuted(_) | Self::Undecided(_) => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Baseline,
    Candidate,
}

/// Whether a block may begin before the machine has followed the change: then it can prove, but not refute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Haste {
    Forbidden,
    Allowed,
    Used,
}

/// How long a block is where `seen` is what the workload did lately and one observation costs so much CPU time.
fn block_length(seen: &Block, cost: Duration) -> Duration {
    let of = |amount: f64, per_s: f64| Duration::from_secs_f64((amount / per_s.max(1e-9)).min(1.0));
    let wanted = of(SWITCHES_PER_BLOCK, seen.workload.switches as f64 / seen.period.as_secs_f64().max(1e-3));
    // A signal that is just enough in some blocks and not in others would leave the word to a lesser one.
    let exact = Signal::ALL.into_iter().filter(|signal| signal.is_exact());
    let enough = exact.filter_map(|signal| {
        let length = of(2.0 * signal.floor(), signal.rate(seen)?);
        (length <= LONG_ENOUGH).then_some(length)
    });
    let wanted = wanted.max(enough.min().unwrap_or_default());
    // Reading a thousand threads takes milliseconds: blocks stay thirty times longer than sampling them takes.
    let shortest = SHORTEST_BLOCK.max(cost * 30).min(LONGEST_BLOCK);
    wanted.clamp(shortest, LONGEST_BLOCK)
}

/// The lengths of the blocks that a trial has, where `seen` is what the workload did lately and one observation costs so
/// much CPU time: the later ones are tried where no signal is valid with the earlier ones.
pub fn block_lengths(seen: &Block, cost: Duration, difference: Difference) -> Vec<Duration> {
    let first = block_length(seen, cost);
    let longer = (difference == Difference::ActiveSet && first < LONG_BLOCK).then_some(LONG_BLOCK);
    [first].into_iter().chain(longer).collect()
}

/// One hypothesis under test.
#[derive(Debug, Clone)]
pub struct Trial {
    baseline: Setting,
    candidate: Setting,
    purpose: Purpose,
    block: Duration,
    side: Side,
    /// All baseline blocks before the candidate's.
    sequential: bool,
    settling: bool,
    haste: Haste,
    /// How long the present side has been settling.
    settled_for: Duration,
    /// How often poll limits were reset since the side changed.
    resets: u32,
    /// Blocks of the side that is ahead, oldest first: they wait for their partners.
    ahead: VecDeque<Block>,
    pairs: Vec<(Block, Block)>,
    /// The workload before the trial.
    before: Block,
    lingers: u32,
    /// How long it has run.
    elapsed: Duration,
    /// What the pairs say so far.
    evidence: Option<Evidence>,
    /// The waker's share of waking a halted vCPU.
    waker_cost: Duration,
    /// What a microsecond of polling is worth in microseconds of waiting.
    poll_price: f64,
    /// How long the candidate has been in force.
    candidate_for: Duration,
    /// The logarithms of the numbers of runnable threads at the ends of the candidate's blocks: their sum and number.
    runnable: (f64, u32),
}

impl Trial {
    /// A trial of `candidate` against `baseline`, beginning with the one that is not in force. `seen` is the
    /// latest observation: what the workload did in it sets the length of the blocks, and its cost bounds it.
    pub fn new(baseline: Setting, candidate: Setting, purpose: Purpose, seen: &Observation) -> Self {
        let before = Block {
            period: seen.period,
            workload: seen.workload,
            waking: Duration::ZERO,
            polled: Duration::ZERO,
        };
        let sequential = purpose == Purpose::Adopt && baseline.active == candidate.active;
        Self {
            baseline,
            candidate,
            purpose,
            block: block_length(&before, seen.cost),
            side: if purpose == Purpose::Adopt && !sequential { Side::Candidate } else { Side::Baseline },
            sequential,
            // What comes first in a sequential trial is in force already.
            settling: !sequential,
            haste: if purpose == Purpose::Reprove { Haste::Allowed } else { Haste::Forbidden },
            settled_for: Duration::ZERO,
            resets: 0,
            ahead: VecDeque::new(),
            pairs: Vec::new(),
            before,
            lingers: 0,
            elapsed: Duration::ZERO,
            evidence: None,
            waker_cost: Duration::ZERO,
            poll_price: 0.0,
            candidate_for: Duration::ZERO,
            runnable: (0.0, 0),
        }
    }

    /// Blocks of at least `length`: for a progress counter that is slow to read.
    #[must_use]
    pub fn with_block(mut self, length: Duration) -> Self {
        self.block = self.block.max(length);
        self
    }

    /// Waking a halted vCPU takes so much CPU time of the waker's, and a microsecond of polling is worth so many of waiting.
    #[must_use]
    pub fn with_costs(mut self, waker_cost: Duration, poll_price: f64) -> Self {
        (self.waker_cost, self.poll_price) = (waker_cost, poll_price);
        self
    }

    /// The setting without the change.
    pub fn baseline(&self) -> &Setting {
        &self.baseline
    }

    /// The setting with the change.
    pub fn candidate(&self) -> &Setting {
        &self.candidate
    }

    /// Why the trial is run.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The pairs measured so far, (baseline, candidate).
    pub fn pairs(&self) -> &[(Block, Block)] {
        &self.pairs
    }

    /// The number of runnable threads under the candidate: the geometric mean over its blocks, rounded up; 0 before
    /// the first. A load that came within the last block must not count as what the candidate was proven with.
    pub fn candidate_runnable(&self) -> u32 {
        let (logarithms, blocks) = self.runnable;
        // Exact logarithms of equal numbers may come back a little larger than the number was.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of u32 is one")]
        if blocks == 0 { 0 } else { ((logarithms / f64::from(blocks)).exp() - 1e-6).ceil() as u32 }
    }

    /// The time of work that the candidate has cost so far: its share of lost progress, of the time that it was in
    /// force; zero where it lost none, or nothing was measured.
    pub fn time_lost(&self) -> Duration {
        let lost = match self.evidence {
            Some(e) if self.hides_loss(&e) => f64::max(1.0 - e.ratio, HIDDEN_LOSS),
            Some(e) => 1.0 - e.ratio,
            None if self.pairs.is_empty() => 0.0,
            None => self.work_lost(),
        };
        self.candidate_for.mul_f64(lost.clamp(0.0, 1.0))
    }

    /// The setting that the present block needs.
    pub fn setting(&self) -> &Setting {
        match self.side {
            Side::Baseline => &self.baseline,
            Side::Candidate => &self.candidate,
        }
    }

    /// How long until the next observation.
    pub fn next(&self) -> Duration {
        if self.settling { SETTLE } else { self.block }
    }

    /// What the two settings differ in.
    pub fn difference(&self) -> Difference {
        if self.baseline.active == self.candidate.active {
            Difference::Retention
        } else {
            Difference::ActiveSet
        }
    }

    /// Takes the observation of the interval that [`Trial::next`] asked for. A verdict ends the trial.
    pub(crate) fn observe(&mut self, o: &Observation, noise: &Noise) -> Option<Verdict> {
        self.elapsed += o.period;
        if self.side == Side::Candidate {
            self.candidate_for += o.period;
        }
        if self.settling {
            self.settled_for += o.period;
            if o.settled {
                self.settling = false;
            } else if self.haste != Haste::Forbidden {
                self.settling = false;
                self.haste = Haste::Used;
            } else if self.settled_for > GIVE_UP {
                return Some(Verdict::Undecided(self.evidence));
            }
            return None;
        }
        let halts: u64 = o.on(&self.setting().active).map(|v| v.halts).sum();
        let wake_ups = halts.min(o.workload.switches) as f64;
        let waking = scale(self.waker_cost, wake_ups);
        let polled = o.on(&self.setting().active).map(|v| v.poll_time).sum();
        let block = Block { period: o.period, workload: o.workload, waking, polled };
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
        // In an alternating trial the next pair begins with the side that is in force: no change, no settling.
        self.pairs.push(match self.side {
            Side::Candidate => (partner, block),
            Side::Baseline => (block, partner),
        });
        let verdict = self.verdict(noise);
        // The last baseline block that was measured beforehand has found its partner.
        let all_paired = self.sequential && self.ahead.is_empty();
        match verdict {
            Some(proven @ Verdict::Proven(_)) => return Some(proven),
            _ if self.haste == Haste::Used => self.begin_settled(),
            Some(_) if self.workload_still_follows() => self.linger(),
            None if all_paired && self.workload_still_follows() => self.linger(),
            None if all_paired => self.sequential = false,
            verdict => return verdict,
        }
        None
    }

    /// Whether the trial has lost what one may. A single pair is a matter of luck, however long its blocks.
    fn costs_too_much(&self) -> bool {
        self.pairs.len() >= 2 && self.time_lost() > A_TRIAL
    }

    /// Whether what is new may lose more than the signal shows.
    fn hides_loss(&self, e: &Evidence) -> bool {
        self.purpose == Purpose::Adopt && e.signal == Signal::WorkTime && !e.looks_better()
    }

    /// Whether the effect of retention is still growing, so that a verdict that is not a proof comes too early.
    fn workload_still_follows(&self) -> bool {
        let Some(Evidence { signal, .. }) = self.evidence else { return false };
        if self.difference() != Difference::Retention || self.lingers == LINGERS {
            return false;
        }
        let rate = |b: &Block| signal.per_second(b).unwrap_or(0.0);
        let (Some((_, first)), Some((baseline, last))) = (self.pairs.first(), self.pairs.last()) else {
            return false;
        };
        match self.purpose {
            // What is worse than the baseline and less so in its last block is noise.
            Purpose::Adopt => rate(last) > STILL_GROWING * f64::max(rate(first), rate(baseline)),
            Purpose::Reprove => rate(&self.before) > STILL_GROWING * rate(last),
        }
    }

    /// Measures the candidate again, which stays in force meanwhile, against the latest blocks of the baseline.
    fn linger(&mut self) {
        self.lingers += 1;
        self.sequential = true;
        let latest = self.pairs.len().saturating_sub(SEQUENTIAL_PAIRS);
        let measured = self.pairs.drain(..).skip(latest).map(|(baseline, _)| baseline);
        // Of a sequential trial that ended early, one is left.
        self.ahead = measured.chain(std::mem::take(&mut self.ahead)).collect();
        if self.side == Side::Baseline {
            self.change_side();
        }
    }

    /// Starts again, from now on with blocks in which only the setting that they name was in force.
    fn begin_settled(&mut self) {
        self.haste = Haste::Forbidden;
        self.pairs.clear();
        self.evidence = None;
        if self.side == Side::Candidate {
            self.change_side();
        }
    }

    /// Whether the present side's blocks wait for partners from the other side.
    fn leads(&self) -> bool {
        self.ahead.is_empty() || (self.sequential && self.side == Side::Baseline)
    }

    fn change_side(&mut self) {
        self.side = self.side.other();
        self.settling = true;
        self.settled_for = Duration::ZERO;
        self.resets = 0;
    }

    /// Whether the machine must reset its poll limits now: the present side has waited for long. Asked once per
    /// step, and at most twice.
    pub fn wants_reset(&mut self) -> bool {
        let wants = self.settling && self.resets < 2 && self.settled_for > PATIENCE * (self.resets + 1);
        self.resets += u32::from(wants);
        wants
    }

    fn verdict(&mut self, noise: &Noise) -> Option<Verdict> {
        let comparison = Comparison::of(&self.pairs, self.difference(), noise, self.poll_price);
        self.evidence = comparison.evidence();
        let n = self.pairs.len();
        let (to_prove, to_refute) = match self.purpose {
            Purpose::Adopt => (2, 2),
            Purpose::Reprove => (1, PAIRS_AGAINST_PROVEN),
        };
        if let Some(e) = comparison.proof(self.purpose).filter(|_| n >= to_prove) {
            return Some(Verdict::Proven(e));
        }
        if let Some(e) = comparison.refutation().filter(|_| n >= to_refute) {
            return Some(Verdict::Refuted(e));
        }
        match self.evidence {
            Some(e) if self.elapsed > LONGEST_TRIAL || self.costs_too_much() => {
                Some(Verdict::Undecided(Some(e)))
            }
            // No exact signal is valid for a change of the active set: the coarse one needs longer blocks.
            None if self.block < LONG_BLOCK && self.difference() == Difference::ActiveSet => {
                if self.work_lost() > TOO_MUCH_LOST {
                    return Some(Verdict::Undecided(None));
                }
                self.block = LONG_BLOCK;
                self.pairs.clear();
                None
            }
            None if n >= 2 => Some(Verdict::Undecided(None)),
            _ => None,
        }
    }

    /// Share of the workload's CPU time that the candidate lost against the baseline.
    fn work_lost(&self) -> f64 {
        let load = |side: fn(&(Block, Block)) -> &Block| {
            let (work, period) = self.pairs.iter().map(side).fold((0.0, 0.0), |(w, p), b| {
                (w + b.workload.cpu_time.as_secs_f64(), p + b.period.as_secs_f64())
            });
            work / f64::max(period, f64::MIN_POSITIVE)
        };
        1.0 - load(|p| &p.1) / load(|p| &p.0).max(f64::MIN_POSITIVE)
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
