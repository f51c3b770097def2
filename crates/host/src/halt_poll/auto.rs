//! Whether halt polling pays on this host, and for how long: decided by the policy's experiments, without I/O.
//!
//! A round starts by watching the VMs for a second. Where they hardly halt, where their guests poll themselves or where they
//! want more pCPUs than there are, that decides. Otherwise the limit that is kept is compared with each other candidate,
//! always by the question whether the longer one of the two pays: polling is what costs, so polling must prove itself. A
//! round that changes nothing is followed by a longer rest.

use std::collections::VecDeque;
use std::time::Duration;

use gleaner_policy::{CpuSet, Experiment, Laboratory, Objective, Purpose, Signal, Verdict};

use super::decision::{Decision, Outcome, Side, Why};
use super::sample::{Sample, Wakes};

/// Limits that are tried beside the one that was found, in ns: none, a fraction of what a wake-up costs on usual hosts, and
/// KVM's default.
const CANDIDATES_NS: [u32; 3] = [0, 50_000, 200_000];
/// A round watches the VMs for so many intervals...
const WATCHED: u32 = 20;
/// ...of this length, which is also the least length of a block.
const BLOCK: Duration = Duration::from_millis(50);
/// The longest block, for VMs that halt rarely, and for many vCPUs.
const LONGEST_BLOCK: Duration = Duration::from_millis(500);
/// A block takes this many times as long as its sample costs.
const COST_FACTOR: u32 = 30;
/// Wake-ups per block, to compare their mean.
const WAKE_UPS_PER_BLOCK: f64 = 50.0;
/// VMs that halt more rarely gain nothing that could be measured.
const MIN_HALTS_PER_SECOND: f64 = WAKE_UPS_PER_BLOCK / 0.5;
/// If vCPUs wait for this share of their time after preemption, polling ends...
const CONTENDED: f64 = 0.10;
/// ...until it is less than this.
const UNCONTENDED: f64 = 0.05;
/// Harm to one VM is judged after as much time with each limit: a time slice of another task is little of that.
const JUDGED: Duration = Duration::from_millis(500);
/// So many vCPUs of one VM that wait longer after preemption, on average, are not taken for chance.
const HARM: f64 = 0.02;
/// The rest after a round that changed something, and after many that did not.
const RESTS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// What [`Auto`] starts with.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// `halt_poll_ns` as it was found, which is kept until something else proves itself.
    pub found_ns: u32,
    /// What polling is allowed to cost.
    pub objective: Objective,
}

/// What to do until the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Take a sample after this time.
    Sample(Duration),
    /// Nothing has to be measured for this time. Then a new round starts ([`Auto::start`]).
    Rest(Duration),
}

/// The answer to a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// `halt_poll_ns` to put in force.
    pub limit_ns: u32,
    /// What to do then.
    pub next: Next,
    /// What was decided, if something was.
    pub decision: Option<Decision>,
}

/// The controller.
#[derive(Debug)]
pub struct Auto {
    laboratory: Laboratory,
    candidates: Vec<u32>,
    /// The limit that has proven itself, or was found.
    kept_ns: u32,
    /// Nothing is polled for, whatever is kept.
    vetoed: bool,
    contended: bool,
    rest: Duration,
    /// Whether this round has changed something.
    changed: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Watch { left: u32, sum: Box<Sample> },
    Compare(Box<Comparison>),
}

/// A comparison that goes on, and those that follow.
#[derive(Debug)]
struct Comparison {
    less_ns: u32,
    more_ns: u32,
    experiment: Experiment,
    less: Sample,
    more: Sample,
    /// vCPUs that KVM polled for longer than the shorter limit, in the latest interval with that.
    above_limit: u32,
    wakes: Wakes,
    /// What the VMs did before.
    watched: Sample,
    /// Candidates that are not compared yet.
    others: VecDeque<u32>,
}

fn limit(ns: u32) -> Duration {
    Duration::from_nanos(ns.into())
}

impl Auto {
    /// Keeps what was found.
    pub fn new(config: Config) -> Self {
        let mut candidates = CANDIDATES_NS.to_vec();
        candidates.push(config.found_ns);
        candidates.sort_unstable();
        candidates.dedup();
        Self {
            laboratory: Laboratory::new(CpuSet::first(1), config.objective),
            candidates,
            kept_ns: config.found_ns,
            vetoed: false,
            contended: false,
            rest: RESTS.0,
            changed: false,
            phase: watch(),
        }
    }

    /// Starts a round.
    pub fn start(&mut self) -> Step {
        self.phase = watch();
        self.changed = false;
        self.step_with(None)
    }

    /// Takes the sample that was asked for, in which the limit of the step before was in force; `now` is the time since
    /// the start.
    pub fn step(&mut self, now: Duration, sample: &Sample) -> Step {
        match &mut self.phase {
            Phase::Watch { left, sum } => {
                sum.add(sample);
                *left -= 1;
                let (last, sum) = (*left == 0, Sample::clone(sum));
                let in_force = self.in_force_ns();
                self.laboratory.learn(limit(in_force), &sample.observation(now, sum.wakes()));
                if last { self.watched(now, sum) } else { self.step_with(None) }
            }
            Phase::Compare(comparison) => {
                let verdict = comparison.observe(&self.laboratory, now, sample);
                match verdict {
                    None => self.step_with(None),
                    Some(verdict) => self.compared(now, &verdict),
                }
            }
        }
    }

    /// What is in force outside of comparisons.
    fn in_force_ns(&self) -> u32 {
        if self.vetoed { 0 } else { self.kept_ns }
    }

    /// Goes on in the present phase.
    fn step_with(&self, decision: Option<Decision>) -> Step {
        match &self.phase {
            Phase::Watch { .. } => Step { limit_ns: self.in_force_ns(), next: Next::Sample(BLOCK), decision },
            Phase::Compare(comparison) => Step {
                limit_ns: comparison.limit_ns(),
                next: Next::Sample(comparison.experiment.next()),
                decision,
            },
        }
    }

    /// Ends the round.
    fn rest(&mut self, decision: Decision) -> Step {
        self.rest = if self.changed { RESTS.0 } else { (self.rest * 2).min(RESTS.1) };
        Step { limit_ns: self.in_force_ns(), next: Next::Rest(self.rest), decision: Some(decision) }
    }

    /// Decides by what the VMs did while they were watched, or starts to compare.
    fn watched(&mut self, now: Duration, sum: Sample) -> Step {
        let before_ns = self.in_force_ns();
        let halts = sum.halts as f64 / sum.period.as_secs_f64().max(f64::MIN_POSITIVE);
        let share = sum.contention();
        self.contended = share >= if self.contended { UNCONTENDED } else { CONTENDED };
        let veto = if sum.halting > 0 && sum.guest_polls == sum.halting {
            Some(Why::GuestsPoll { vcpus: sum.halting })
        } else if self.contended {
            Some(Why::Contended { preempted: share })
        } else {
            None
        };
        self.vetoed = veto.is_some();
        let idle = Why::Idle { halts };
        let Some(why) = veto.or((halts < MIN_HALTS_PER_SECOND).then_some(idle)) else {
            let others = self.candidates.iter().copied().filter(|ns| *ns != self.kept_ns).collect();
            self.compare(now, sum, others);
            return self.step_with(None);
        };
        let limit_ns = self.in_force_ns();
        self.changed |= limit_ns != before_ns;
        self.rest(Decision { at: now, before_ns, limit_ns, why })
    }

    /// Starts the next comparison. There is none if no candidate is left.
    fn compare(&mut self, now: Duration, watched: Sample, mut others: VecDeque<u32>) -> bool {
        let Some(other) = others.pop_front() else { return false };
        let (less_ns, more_ns) = (self.kept_ns.min(other), self.kept_ns.max(other));
        let purpose = if more_ns == self.kept_ns { Purpose::Reprove } else { Purpose::Adopt };
        let wakes = watched.wakes();
        let mut seen = watched.observation(now, wakes);
        seen.cost = watched.cost / WATCHED;
        let rate = watched.halts as f64 / watched.period.as_secs_f64();
        // Reading the counters of many vCPUs takes long.
        let readable = seen.cost * COST_FACTOR;
        let block =
            Duration::from_secs_f64(WAKE_UPS_PER_BLOCK / rate).max(readable).clamp(BLOCK, LONGEST_BLOCK);
        let experiment = self.laboratory.start(limit(less_ns), limit(more_ns), purpose, &seen, block);
        self.phase = Phase::Compare(Box::new(Comparison {
            less_ns,
            more_ns,
            experiment,
            less: Sample::default(),
            more: Sample::default(),
            above_limit: 0,
            wakes,
            watched,
            others,
        }));
        true
    }

    /// Keeps one of the two limits, and goes on with the next candidate.
    fn compared(&mut self, now: Duration, verdict: &Verdict) -> Step {
        let Phase::Compare(comparison) = std::mem::replace(&mut self.phase, watch()) else {
            return self.step_with(None);
        };
        let before_ns = self.kept_ns;
        let (outcome, why) = comparison.outcome(verdict);
        self.kept_ns = match outcome {
            Outcome::Pays => comparison.more_ns,
            Outcome::DoesNotPay | Outcome::Harms { .. } => comparison.less_ns,
            Outcome::Undecided | Outcome::NotFollowed { .. } => before_ns,
        };
        self.changed |= self.kept_ns != before_ns;
        let decision = Decision { at: now, before_ns, limit_ns: self.kept_ns, why };
        let Comparison { watched, others, .. } = *comparison;
        // KVM's limits do not follow: nothing else could be compared either.
        let others = if matches!(outcome, Outcome::NotFollowed { .. }) { VecDeque::new() } else { others };
        if self.compare(now, watched, others) { self.step_with(Some(decision)) } else { self.rest(decision) }
    }
}

fn watch() -> Phase {
    Phase::Watch { left: WATCHED, sum: Box::default() }
}

impl Comparison {
    fn limit_ns(&self) -> u32 {
        if self.experiment.limit() == limit(self.more_ns) { self.more_ns } else { self.less_ns }
    }

    fn observe(&mut self, laboratory: &Laboratory, now: Duration, sample: &Sample) -> Option<Verdict> {
        if self.limit_ns() == self.less_ns {
            self.above_limit = sample.above_limit;
        }
        if !self.experiment.is_settling() {
            let side = if self.limit_ns() == self.more_ns { &mut self.more } else { &mut self.less };
            side.add(sample);
        }
        let open = self.less.period.min(self.more.period) < JUDGED;
        self.experiment.observe(laboratory, &sample.observation(now, self.wakes), open)
    }

    fn outcome(&self, verdict: &Verdict) -> (Outcome, Why) {
        let less = Side::of(self.less_ns, &self.less, self.wakes);
        let more = Side::of(self.more_ns, &self.more, self.wakes);
        let outcome = match verdict {
            Verdict::Proven(evidence) => {
                let harmed = self.less.most_harmed(&self.more).filter(|(_, vcpus)| *vcpus > HARM);
                if let Some((pid, _)) = harmed {
                    Outcome::Harms { pid }
                } else if evidence.signal != Signal::Waiting && more.wake_up > less.wake_up {
                    // Guests also spend more time where their threads spin for those of vCPUs that wait.
                    Outcome::Undecided
                } else {
                    Outcome::Pays
                }
            }
            Verdict::Refuted(_) => Outcome::DoesNotPay,
            Verdict::Undecided(_) if self.above_limit > 0 => Outcome::NotFollowed { vcpus: self.above_limit },
            Verdict::Undecided(_) => Outcome::Undecided,
        };
        (outcome, Why::Compared { outcome, less, more })
    }
}

#[cfg(test)]
mod tests;
