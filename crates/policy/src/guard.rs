//! The guard: every change is a hypothesis that must prove itself in alternating blocks, or is undone.
//!
//! A [`Trial`] runs baseline and candidate in the order B C C B B C C B …, so that a drift hits both alike,
//! and stops as soon as the evidence decides. New retention is the exception: its baseline comes first, B B B C C C,
//! since vCPUs that have begun to poll stop it only when they halt. Its proofs later alternate.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::progress::{Block, Difference, Evidence, compare};
use crate::{Observation, Setting};

/// After a change the first moments belong to neither setting: threads migrate, poll limits grow.
const SETTLE: Duration = Duration::from_millis(2);
/// How long a trial waits for the machine to follow a change by itself. Then the vCPUs are made to forget: where
/// some have halted and others have not, each wake-up of the former is slow already.
const PATIENCE: Duration = Duration::from_millis(20);
/// Where that is in vain (others run there too), it waits for halts by themselves, but no longer than this.
const GIVE_UP: Duration = Duration::from_millis(300);
/// A trial of new retention has this many blocks of each side.
const SEQUENTIAL_PAIRS: usize = 3;
/// A block must see this many hand-overs for its counts to be worth comparing.
const SWITCHES_PER_BLOCK: f64 = 200.0;
/// A block is at least this long: well above the wake-up of the observer itself.
const SHORTEST_BLOCK: Duration = Duration::from_millis(10);
/// And at most this long: what a bad candidate may cost in one go.
const LONGEST_BLOCK: Duration = Duration::from_millis(120);
/// Blocks for the coarse user-time signal: 25 to 120 ticks each.
const LONG_BLOCK: Duration = Duration::from_millis(100);
/// A change whose effect has not shown after this many pairs is not worth having.
const MAX_PAIRS: usize = 8;
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Baseline,
    Candidate,
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
    /// How long the present side has been settling.
    settled_for: Duration,
    /// How often the machine was told to forget since the side changed.
    forgets: u32,
    /// Blocks of the side that is ahead, oldest first: they wait for their partners.
    ahead: VecDeque<Block>,
    pairs: Vec<(Block, Block)>,
    /// The largest number of runnable threads seen under the candidate.
    runnable: u32,
}

impl Trial {
    /// A trial of `candidate` against `baseline`, beginning with the one that is not in force. `seen` is the
    /// latest observation: the rate of hand-overs in it sets the length of the blocks, and its cost bounds it.
    pub fn new(baseline: Setting, candidate: Setting, purpose: Purpose, seen: &Observation) -> Self {
        let switches_per_s = seen.workload.switches as f64 / seen.period.as_secs_f64().max(1e-3);
        let wanted = Duration::from_secs_f64((SWITCHES_PER_BLOCK / switches_per_s.max(1.0)).min(1.0));
        // Reading a thousand threads takes milliseconds: blocks stay twenty times longer than the look at them.
        let shortest = SHORTEST_BLOCK.max(seen.cost * 20).min(LONGEST_BLOCK);
        let sequential = purpose == Purpose::Adopt && baseline.active == candidate.active;
        Self {
            baseline,
            candidate,
            purpose,
            block: wanted.clamp(shortest, LONGEST_BLOCK),
            side: if purpose == Purpose::Adopt && !sequential { Side::Candidate } else { Side::Baseline },
            sequential,
            // What comes first in a sequential trial is in force already.
            settling: !sequential,
            settled_for: Duration::ZERO,
            forgets: 0,
            ahead: VecDeque::new(),
            pairs: Vec::new(),
            runnable: 0,
        }
    }

    /// Blocks of at least `length`: for a progress counter that is slow to read.
    #[must_use]
    pub fn with_block(mut self, length: Duration) -> Self {
        self.block = self.block.max(length);
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

    /// The largest number of runnable threads seen under the candidate.
    pub fn candidate_runnable(&self) -> u32 {
        self.runnable
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
    pub fn observe(&mut self, o: &Observation) -> Option<Verdict> {
        if self.settling {
            self.settled_for += o.period;
            if o.settled {
                self.settling = false;
            } else if self.settled_for > GIVE_UP {
                return Some(Verdict::Undecided(compare(&self.pairs, self.difference())));
            }
            return None;
        }
        let block = Block { period: o.period, workload: o.workload };
        if self.side == Side::Candidate {
            self.runnable = self.runnable.max(o.runnable);
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
        self.verdict()
    }

    /// Whether the present side's blocks wait for partners from the other side.
    fn leads(&self) -> bool {
        self.ahead.is_empty() || (self.sequential && self.side == Side::Baseline)
    }

    fn change_side(&mut self) {
        self.side = self.side.other();
        self.settling = true;
        self.settled_for = Duration::ZERO;
        self.forgets = 0;
    }

    /// Whether the machine must make its vCPUs forget now: the present side has waited for long. Asked once per
    /// step, and at most twice.
    pub fn wants_forget(&mut self) -> bool {
        let wants = self.settling && self.forgets < 2 && self.settled_for > PATIENCE * (self.forgets + 1);
        self.forgets += u32::from(wants);
        wants
    }

    fn verdict(&mut self) -> Option<Verdict> {
        let evidence = compare(&self.pairs, self.difference());
        let enough = self.purpose == Purpose::Reprove || self.pairs.len() >= 2;
        match evidence {
            Some(e) if enough && e.proves() => Some(Verdict::Proven(e)),
            Some(e) if enough && e.refutes() => Some(Verdict::Refuted(e)),
            _ if self.pairs.len() >= self.most_pairs() => Some(Verdict::Undecided(evidence)),
            // No exact signal is valid for a change of the active set: the coarse one needs longer blocks.
            None if self.block < LONG_BLOCK && self.difference() == Difference::ActiveSet => {
                if self.work_lost() > TOO_MUCH_LOST {
                    return Some(Verdict::Undecided(None));
                }
                self.block = LONG_BLOCK;
                self.pairs.clear();
                None
            }
            None if self.pairs.len() >= 2 => Some(Verdict::Undecided(None)),
            _ => None,
        }
    }

    fn most_pairs(&self) -> usize {
        if self.sequential { SEQUENTIAL_PAIRS } else { MAX_PAIRS }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuId, CpuSet, Method, Retention, VcpuInterval, WorkloadInterval};

    const MS: Duration = Duration::from_millis(1);

    fn settings() -> (Setting, Setting) {
        let untouched = Setting::untouched(&CpuSet::first(2));
        let retained = Setting {
            retention: Retention { method: Method::Haltpoll, limit: 200 * MS / 1000 },
            ..untouched.clone()
        };
        (untouched, retained)
    }

    fn packed(from: &Setting) -> Setting {
        Setting { active: CpuSet::first(1), ..from.clone() }
    }

    fn observed(period: Duration, workload: WorkloadInterval) -> Observation {
        let vcpu = |cpu| VcpuInterval {
            cpu: CpuId(cpu),
            halts: 0,
            halt_time: Duration::ZERO,
            polls: 0,
            poll_time: Duration::ZERO,
            steal: Duration::ZERO,
        };
        Observation {
            at: Duration::ZERO,
            period,
            vcpus: vec![vcpu(0), vcpu(1)],
            workload,
            runnable: 2,
            throttled: 0.0,
            settled: true,
            cost: MS / 100,
        }
    }

    /// Drives a trial against a machine whose rates per second under a setting are `rates(setting)`.
    fn drive(trial: &mut Trial, rates: impl Fn(&Setting) -> (f64, f64)) -> (Verdict, Duration, u32) {
        let (mut took, mut changes, mut last) = (Duration::ZERO, 0, None);
        for _ in 0..1000 {
            let (setting, period) = (trial.setting().clone(), trial.next());
            if last.as_ref() != Some(&setting) {
                changes += 1;
                last = Some(setting.clone());
            }
            let (load, switches) = rates(&setting);
            took += period;
            let workload = WorkloadInterval {
                cpu_time: period.mul_f64(load),
                user_time: period.mul_f64(load * 0.5),
                switches: period.mul_f64(switches).as_secs(),
                ..WorkloadInterval::default()
            };
            if let Some(verdict) = trial.observe(&observed(period, workload)) {
                return (verdict, took, changes);
            }
        }
        panic!("a trial ends");
    }

    fn busy() -> Observation {
        observed(20 * MS, WorkloadInterval { switches: 1000, ..WorkloadInterval::default() })
    }

    #[test]
    fn a_large_gain_is_proven_within_sixty_milliseconds() {
        let (untouched, retained) = settings();
        let mut trial = Trial::new(untouched, retained.clone(), Purpose::Adopt, &busy());
        let (verdict, took, changes) =
            drive(&mut trial, |s| if *s == retained { (1.2, 140_000.0) } else { (0.8, 34_000.0) });
        assert!(matches!(verdict, Verdict::Proven(e) if e.ratio > 1.4), "{verdict:?}");
        assert!(took <= 60 * MS, "{took:?}");
        assert_eq!(changes, 2, "new retention: B B B C C, one change");
    }

    #[test]
    fn a_loss_is_refuted_and_costs_two_blocks() {
        let (untouched, retained) = settings();
        let mut trial = Trial::new(untouched, retained.clone(), Purpose::Adopt, &busy());
        let (verdict, took, _) =
            drive(&mut trial, |s| if *s == retained { (1.24, 85_000.0) } else { (1.3, 54_000.0) });
        assert!(matches!(verdict, Verdict::Refuted(_)), "{verdict:?}");
        assert!(took <= 60 * MS);
    }

    #[test]
    fn a_difference_within_the_margin_is_not_adopted() {
        let (untouched, retained) = settings();
        let mut trial = Trial::new(untouched, retained.clone(), Purpose::Adopt, &busy());
        let (verdict, ..) =
            drive(&mut trial, |s| if *s == retained { (1.03, 50_000.0) } else { (1.0, 50_000.0) });
        assert!(!matches!(verdict, Verdict::Proven(_)), "{verdict:?}");
    }

    #[test]
    fn without_an_exact_signal_the_blocks_grow_and_user_time_decides() {
        let (untouched, _) = settings();
        let candidate = packed(&untouched);
        let mut trial = Trial::new(untouched.clone(), candidate.clone(), Purpose::Adopt, &busy());
        // The granularity changes by a factor of three, so hand-overs say nothing.
        let (verdict, ..) =
            drive(&mut trial, |s| if *s == candidate { (1.4, 90_000.0) } else { (1.2, 25_000.0) });
        assert!(matches!(verdict, Verdict::Proven(e) if e.signal == crate::Signal::UserTime), "{verdict:?}");
    }

    #[test]
    fn a_candidate_that_takes_much_of_the_cpu_time_away_gets_no_long_blocks() {
        let (untouched, _) = settings();
        let candidate = packed(&untouched);
        let mut trial = Trial::new(untouched.clone(), candidate.clone(), Purpose::Adopt, &busy());
        let (verdict, took, _) =
            drive(&mut trial, |s| if *s == candidate { (0.9, 600_000.0) } else { (1.3, 54_000.0) });
        assert_eq!(verdict, Verdict::Undecided(None));
        assert!(took <= 30 * MS, "{took:?}");
    }

    #[test]
    fn a_reproof_begins_without_the_change_and_needs_one_pair() {
        let (untouched, retained) = settings();
        let mut trial = Trial::new(untouched.clone(), retained.clone(), Purpose::Reprove, &busy());
        assert_eq!(trial.setting(), &untouched);
        let (verdict, took, _) =
            drive(&mut trial, |s| if *s == retained { (1.2, 140_000.0) } else { (0.8, 34_000.0) });
        assert!(matches!(verdict, Verdict::Proven(_)));
        assert!(took <= 30 * MS);
    }

    #[test]
    fn rare_hand_overs_get_longer_blocks_and_costly_looks_too() {
        let (untouched, retained) = settings();
        let mut rare = busy();
        rare.workload.switches = 100;
        let trial = Trial::new(untouched.clone(), retained.clone(), Purpose::Adopt, &rare);
        assert_eq!(trial.block, 40 * MS);
        let costly = Observation { cost: 5 * MS, ..busy() };
        assert_eq!(Trial::new(untouched, retained, Purpose::Adopt, &costly).block, 100 * MS);
    }

    #[test]
    fn consolidation_alternates() {
        let (untouched, _) = settings();
        let candidate = packed(&untouched);
        let mut trial = Trial::new(untouched.clone(), candidate.clone(), Purpose::Adopt, &busy());
        let (verdict, _, changes) =
            drive(&mut trial, |s| if *s == candidate { (1.0, 60_000.0) } else { (0.8, 42_000.0) });
        assert!(matches!(verdict, Verdict::Proven(e) if e.signal == crate::Signal::Handovers), "{verdict:?}");
        assert_eq!(changes, 3, "C B B C: the middle blocks share a setting");
    }

    #[test]
    fn vcpus_that_do_not_settle_are_made_to_forget_and_end_the_trial_in_the_end() {
        let (untouched, retained) = settings();
        let mut trial = Trial::new(untouched, retained, Purpose::Reprove, &busy());
        let stuck = Observation { settled: false, ..observed(10 * MS, WorkloadInterval::default()) };
        let (mut forgets, mut steps) = (0, 0);
        let verdict = loop {
            steps += 1;
            assert!(steps < 100, "a trial ends");
            if let Some(verdict) = trial.observe(&stuck) {
                break verdict;
            }
            forgets += u32::from(trial.wants_forget());
        };
        assert_eq!((verdict, forgets), (Verdict::Undecided(None), 2));
    }
}
