//! Whether Resched-Co helps a VM, by experiment: decided without I/O.
//!
//! The paper says how a hypervisor can see it (§4.2, §6): where recipients of reschedule interrupts run at once, threads that
//! spin before they block meet while they spin, so that fewer of them have to be woken. So interleaved blocks with and
//! without the rule compare the vCPU time between two reschedule interrupts. Spinning in vain makes that longer, too; then
//! pause-loop exits become more frequent, and the rule stays off.

use std::fmt;
use std::time::Duration;

use gleaner_policy::{
    CpuSet, Evidence, Experiment, Laboratory, Objective, Observation, Purpose, Verdict, WorkloadInterval,
};

/// A round watches the VM for so many intervals...
const WATCHED: u32 = 5;
/// ...of this length, which is also that of a block: many slices of each vCPU.
const BLOCK: Duration = Duration::from_millis(200);
/// With fewer reschedule interrupts per second of vCPU time their rule makes no difference.
const FEWEST: f64 = 100.0;
/// Pause-loop exits per second of vCPU time may become more frequent by this factor, if they are more than [`FEWEST`].
const MORE_SPINS: f64 = 1.25;
/// The rest while the rule is in force, since it could do harm unnoticed, and after a round that ended it; and after many that
/// left it off.
const RESTS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));
/// Stands for the rule in an experiment, which knows times.
const ON: Duration = Duration::from_micros(500);

/// What the vCPUs of a VM did in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sample {
    /// Its length.
    pub(crate) period: Duration,
    /// Time for which they ran, summed up.
    pub(crate) ran: Duration,
    /// Reschedule interrupts between them.
    pub(crate) reschedules: u64,
    /// Pause-loop exits.
    pub(crate) spins: u64,
}

/// A decision, with what it is based on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Whether the rule was in force.
    pub was_on: bool,
    /// Whether it is from now on.
    pub is_on: bool,
    /// What it is based on.
    pub why: Why,
}

/// What a decision is based on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// Reschedule interrupts are too rare: so many per second of vCPU time.
    Rare(f64),
    /// Pause-loop exits per second of vCPU time are more frequent with the rule than without.
    Spins {
        /// Without.
        without: f64,
        /// With it.
        with: f64,
    },
    /// Blocks with and without were compared.
    Compared {
        /// Whether they decided.
        decided: bool,
        /// The vCPU time between two reschedule interrupts with the rule, by that without.
        evidence: Option<Evidence>,
    },
}

/// The controller of one VM.
#[derive(Debug)]
pub(crate) struct Auto {
    laboratory: Laboratory,
    is_on: bool,
    rest: Duration,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Watch { left: u32, sum: Sample, last: Sample },
    Compare(Box<Comparison>),
    Rest,
}

#[derive(Debug)]
struct Comparison {
    experiment: Experiment,
    without: Sample,
    with: Sample,
}

impl Default for Auto {
    fn default() -> Self {
        Self {
            laboratory: Laboratory::new(CpuSet::first(1), Objective::Balanced),
            is_on: false,
            rest: RESTS.0,
            phase: watch(),
        }
    }
}

impl Auto {
    /// Whether the rule has to be in force now.
    pub(crate) fn is_on(&self) -> bool {
        match &self.phase {
            Phase::Compare(comparison) => comparison.is_on(),
            Phase::Watch { .. } | Phase::Rest => self.is_on,
        }
    }

    /// Whether blocks with the rule and without alternate now.
    pub(crate) fn is_comparing(&self) -> bool {
        matches!(self.phase, Phase::Compare(_))
    }

    /// Time until the next sample.
    pub(crate) fn next(&self) -> Duration {
        match &self.phase {
            Phase::Watch { .. } => BLOCK,
            Phase::Compare(comparison) => comparison.experiment.next(),
            Phase::Rest => self.rest,
        }
    }

    /// Takes the sample of the time since the one before; `now` is the time since the start.
    pub(crate) fn step(&mut self, now: Duration, sample: &Sample) -> Option<Decision> {
        match &mut self.phase {
            Phase::Rest => {
                self.phase = watch();
                None
            }
            Phase::Watch { left, sum, last } => {
                self.laboratory.learn(if self.is_on { ON } else { Duration::ZERO }, &sample.observation(now));
                sum.add(sample);
                (*left, *last) = (*left - 1, *sample);
                let (over, sum, last) = (*left == 0, *sum, *last);
                if over { self.watched(now, &sum, &last) } else { None }
            }
            Phase::Compare(comparison) => {
                let verdict = comparison.observe(&self.laboratory, now, sample)?;
                let why = comparison.why(&verdict);
                let is_on = match (why, verdict) {
                    (Why::Compared { .. }, Verdict::Proven(_)) => true,
                    // Nothing contradicts the earlier proof.
                    (Why::Compared { .. }, Verdict::Undecided(Some(e))) => self.is_on && e.ratio >= 1.0,
                    _ => false,
                };
                Some(self.decide(is_on, why))
            }
        }
    }

    fn watched(&mut self, now: Duration, sum: &Sample, last: &Sample) -> Option<Decision> {
        let per_second = sum.per_second(sum.reschedules);
        if per_second < FEWEST {
            return Some(self.decide(false, Why::Rare(per_second)));
        }
        let purpose = if self.is_on { Purpose::Reprove } else { Purpose::Adopt };
        let experiment = self.laboratory.start(Duration::ZERO, ON, purpose, &last.observation(now), BLOCK);
        let (without, with) = (Sample::default(), Sample::default());
        self.phase = Phase::Compare(Box::new(Comparison { experiment, without, with }));
        None
    }

    /// Ends the round.
    fn decide(&mut self, is_on: bool, why: Why) -> Decision {
        let was_on = std::mem::replace(&mut self.is_on, is_on);
        self.rest = if was_on || is_on { RESTS.0 } else { (self.rest * 2).min(RESTS.1) };
        self.phase = Phase::Rest;
        Decision { was_on, is_on, why }
    }
}

fn watch() -> Phase {
    Phase::Watch { left: WATCHED, sum: Sample::default(), last: Sample::default() }
}

impl Comparison {
    fn is_on(&self) -> bool {
        !self.experiment.limit().is_zero()
    }

    fn observe(&mut self, laboratory: &Laboratory, now: Duration, sample: &Sample) -> Option<Verdict> {
        if !self.experiment.is_settling() {
            let side = if self.is_on() { &mut self.with } else { &mut self.without };
            side.add(sample);
        }
        self.experiment.observe(laboratory, &sample.observation(now), false)
    }

    fn why(&self, verdict: &Verdict) -> Why {
        let [without, with] = [&self.without, &self.with].map(|side| side.per_second(side.spins));
        if with > FEWEST && with > without * MORE_SPINS {
            return Why::Spins { without, with };
        }
        let decided = !matches!(verdict, Verdict::Undecided(_));
        Why::Compared { decided, evidence: verdict.evidence() }
    }
}

impl Sample {
    fn add(&mut self, other: &Self) {
        self.period += other.period;
        self.ran += other.ran;
        self.reschedules += other.reschedules;
        self.spins += other.spins;
    }

    /// Events per second of vCPU time.
    fn per_second(&self, events: u64) -> f64 {
        events as f64 / self.ran.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// As the experiment takes it: what grows at a rate is what is compared.
    fn observation(&self, at: Duration) -> Observation {
        let between_us = 1e6 / self.per_second(self.reschedules.max(1));
        let workload = WorkloadInterval {
            cpu_time: self.ran,
            counter: Some(between_us * 1e3 * self.period.as_secs_f64()),
            ..WorkloadInterval::default()
        };
        Observation {
            at,
            period: self.period,
            vcpus: Vec::new(),
            workload,
            runnable: 0,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost: Duration::ZERO,
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (self.was_on, self.is_on) {
            (false, false) => "stays off",
            (false, true) => "is on from now on",
            (true, true) => "stays on",
            (true, false) => "is off from now on",
        };
        write!(f, "resched-co {what}: {}", self.why)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rare(per_second) => {
                write!(
                    f,
                    "{per_second:.0} reschedule interrupts per second of vCPU time are too few to matter"
                )
            }
            Self::Spins { without, with } => write!(
                f,
                "with it there are {with:.0} pause-loop exits per second of vCPU time, without it {without:.0}"
            ),
            Self::Compared { decided, evidence: Some(e) } => {
                let unclear = if *decided { "" } else { "no clear difference, " };
                let pairs = if e.pairs == 1 { "pair" } else { "pairs" };
                write!(
                    f,
                    "{unclear}with it {:.2} times the vCPU time between two reschedule interrupts ({:.2} to {:.2}, {} {pairs} of \
                     blocks)",
                    e.ratio, e.low, e.high, e.pairs
                )
            }
            Self::Compared { evidence: None, .. } => f.write_str("there was nothing to compare"),
        }
    }
}

#[cfg(test)]
mod tests;
