//! The cost of a wake-up on this machine: the paper's Table 2, measured.
//!
//! Nothing here changes the machine's settings. The caller switches the retention method when [`matrix`] asks
//! for it between blocks. Every call is bounded in time, even if threads get no CPU time.

#![allow(clippy::similar_names, reason = "waker and wakee are the words for them")]

mod error;
mod futex;
mod handoff;
mod helpers;
mod matrix;
mod samples;

use std::fmt;
use std::time::Duration;

use gleaner_policy::CpuId;
use serde::{Deserialize, Serialize};

pub use error::WakeError;
pub use handoff::measure;
pub use helpers::{allowed, pin};
pub use matrix::{Cell, MatrixPlan, matrix, representative_pairs};
pub use samples::{WakeSamples, WakeSummary};

use helpers::{Helper, Helpers};

/// One measurement: between which vCPUs, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// vCPU of the thread that wakes first; the two then take turns, so both directions are measured.
    pub waker: CpuId,
    /// vCPU of the other thread. Can be the same.
    pub wakee: CpuId,
    /// Stop after this many wake-ups in each direction, at most [`Plan::MAX_ROUNDS`].
    pub rounds: u32,
    /// Stop after this time.
    pub budget: Duration,
    /// How long the waker lets the wakee sleep. Must exceed the time from `FUTEX_WAIT` through the idle loop
    /// to the hypervisor (a few microseconds), and be below the poll limit of a retention method that is to
    /// be measured at its best.
    pub gap: Duration,
    /// Timeout for threads that get no CPU time: for each co-runner of [`Case::Contended`] at the start, and
    /// for the threads to stop, which get as long as the budget if that is longer.
    pub timeout: Duration,
}

impl Plan {
    /// Long enough to reach the hypervisor, far shorter than any poll limit in use.
    pub const DEFAULT_GAP: Duration = Duration::from_micros(15);

    /// Enough unless something of higher priority occupies a vCPU, or the machine stalls.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(200);

    /// Maximum rounds of one measurement; hand-offs are counted in 32 bits.
    pub const MAX_ROUNDS: u32 = u32::MAX / 4;

    /// 100 ms of wake-ups between two vCPUs.
    pub fn new(waker: CpuId, wakee: CpuId) -> Self {
        let budget = Duration::from_millis(100);
        let (gap, timeout) = (Self::DEFAULT_GAP, Self::DEFAULT_TIMEOUT);
        Self { waker, wakee, rounds: Self::MAX_ROUNDS, budget, gap, timeout }
    }
}

/// The settings of the paper's Table 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// A: both threads on one vCPU; a wake-up is a context switch.
    SameVcpu,
    /// B: two vCPUs that never idle, because a thread of lowest priority spins on each.
    Awake,
    /// C: two vCPUs that idle as the active retention method lets them.
    Halting,
    /// D: like C, with a busy thread of normal priority on every vCPU, which the wakee must preempt. (The
    /// paper's co-runner is in another VM, which a guest cannot arrange.)
    Contended,
}

impl Case {
    /// All settings, in the order of Table 2.
    pub const ALL: [Self; 4] = [Self::SameVcpu, Self::Awake, Self::Halting, Self::Contended];

    /// Letter of the setting in Table 2.
    pub const fn letter(self) -> char {
        match self {
            Self::SameVcpu => 'A',
            Self::Awake => 'B',
            Self::Halting => 'C',
            Self::Contended => 'D',
        }
    }

    /// Name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameVcpu => "same-vcpu",
            Self::Awake => "awake",
            Self::Halting => "halting",
            Self::Contended => "contended",
        }
    }

    /// Measures wake-ups in this setting; the errors are those of [`measure`].
    pub fn measure(self, plan: &Plan) -> Result<WakeSamples, WakeError> {
        match self {
            Self::SameVcpu => same_vcpu(plan),
            Self::Awake => awake(plan),
            Self::Halting => halting(plan),
            Self::Contended => contended(plan),
        }
    }
}

impl std::str::FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|case| case.name() == name).ok_or_else(|| {
            format!(
                "`{name}` is not a setting of Table 2; use one of {}",
                Self::ALL.map(Self::name).join(", ")
            )
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Setting A: both threads on the waker's vCPU.
pub fn same_vcpu(plan: &Plan) -> Result<WakeSamples, WakeError> {
    measure(&Plan { wakee: plan.waker, ..*plan })
}

/// Setting B: `SCHED_IDLE` threads on both vCPUs call `sched_yield` all the time.
pub fn awake(plan: &Plan) -> Result<WakeSamples, WakeError> {
    let _spinners =
        Helpers::start(Helper::Spin, &[plan.waker, plan.wakee].into_iter().collect(), plan.timeout)?;
    measure(plan)
}

/// Setting C: the two threads alone; this is [`measure`].
pub fn halting(plan: &Plan) -> Result<WakeSamples, WakeError> {
    measure(plan)
}

/// Setting D: a compute thread on every vCPU that the calling thread may use.
pub fn contended(plan: &Plan) -> Result<WakeSamples, WakeError> {
    let _co_runners = Helpers::start(Helper::Compute, &helpers::allowed()?, plan.timeout)?;
    measure(plan)
}
