//! What the policy answers: the setting to put in force, when to sample next, and why.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::guard::{Purpose, Verdict};
use crate::{
    AfterRollBack, Conditions, CpuId, CpuSet, Evidence, Forbidden, MajorChange, OverloadSource, Refutation,
    Retention, Setting, Veto, WorkloadId,
};

/// What is measured only when it is worth its cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sense {
    /// How long threads wait after wake-ups: in trials, which need it, and while a setting is held, so that its effect
    /// can be measured.
    pub waiting: bool,
    /// What the workload sends through sockets: in trials, and where wake-ups cost so much that one could begin, whose
    /// noise must be known by then.
    pub traffic: bool,
}

/// The answer to one observation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// The setting to put in force.
    pub setting: Setting,
    /// Whether the machine must stop vCPUs from polling by the limit of an earlier setting. A vCPU drops its
    /// poll limit only at a halt, and one with short idle periods might not halt for a long time.
    pub reset_poll_limits: bool,
    /// Time until the next observation...
    pub next: Duration,
    /// ...unless this happens first.
    pub watch: Option<Watch>,
    /// What to measure until then, where that is possible.
    pub sense: Sense,
    /// What was decided at this step, and why; often empty.
    pub events: Vec<Event>,
}

/// What to watch for between observations: the machine's number of runnable threads, which is cheap to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Sampling interval.
    pub every: Duration,
    /// Observe at once when a sample is at least this...
    pub at_least: Option<u32>,
    /// ...or at most this...
    pub at_most: Option<u32>,
    /// ...this many times in a row.
    pub times: u32,
    /// Where the kernel reports overload by itself ([`crate::OverloadSource::RunQueues`]): observe at once when
    /// there are `at_least` runnable threads for this long.
    pub persistence: Duration,
}

impl Watch {
    /// Whether a sample of `runnable` threads is within the bounds.
    pub fn matches(&self, runnable: u32) -> bool {
        self.at_least.is_some_and(|n| runnable >= n) || self.at_most.is_some_and(|n| runnable <= n)
    }
}

/// Why a trial was started.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case")]
pub enum TrialReason {
    /// Idle vCPUs halt so often that waking them takes a significant share of the time.
    WakeUps {
        /// Halts per second whose idle period a wake-up of the workload can have ended.
        halts_per_s: f64,
        /// Cost of one such wake-up.
        wake_cost: Duration,
        /// The share of one vCPU's time lost to them.
        lost: f64,
    },
    /// Both conditions of §5 hold.
    Conditions {
        /// The conditions' numbers.
        conditions: Conditions,
        /// The vCPU to make inactive; if several, the least useful one.
        cpu: CpuId,
        /// How many vCPUs the candidate makes inactive.
        inactive: usize,
    },
    /// A smaller set paid, so half of it might pay more, although §5's conditions do not both hold.
    SmallerSetPaid {
        /// The conditions' numbers.
        conditions: Conditions,
        /// How many vCPUs the candidate makes inactive.
        inactive: usize,
    },
    /// What was proven is due to be proven again.
    TrustExpired,
}

/// A decision of the policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A trial started.
    TrialStarted {
        /// The setting without the change.
        baseline: Setting,
        /// The setting with it.
        candidate: Setting,
        /// Whether the candidate is new.
        purpose: Purpose,
        /// What made it worth trying.
        why: TrialReason,
    },
    /// The trial ended.
    TrialEnded {
        /// The setting that was tried.
        candidate: Setting,
        /// Whether the candidate was new.
        purpose: Purpose,
        /// The outcome.
        verdict: Verdict,
        /// The setting in force from now on.
        kept: Setting,
        /// When the same can be tried again at the earliest, since the start.
        again_at: Duration,
    },
    /// The strategy `paper` removed one vCPU from the active set: both conditions of §5 hold.
    Consolidated {
        /// The vCPU that is inactive now.
        cpu: CpuId,
        /// The active vCPUs from now on.
        active: CpuSet,
        /// The conditions' numbers.
        conditions: Conditions,
    },
    /// §5's roll-back: inactive vCPUs are active again.
    RolledBack {
        /// The active vCPUs from now on.
        active: CpuSet,
        /// Evidence against the smaller set.
        refutation: Refutation,
        /// The factor adjusted, or how the search continues.
        then: AfterRollBack,
    },
    /// A proven setting is in force again; it is proven again soon.
    Resumed {
        /// The setting resumed.
        setting: Setting,
        /// Evidence from an earlier run; none if this run proved it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<Evidence>,
    },
    /// The retention limit was adapted to the idle lengths.
    LimitChanged {
        /// Limit before.
        from: Duration,
        /// Limit from now on.
        to: Duration,
    },
    /// Retention ended without a trial: it cannot pay here now.
    Released {
        /// What makes it useless.
        why: ReleaseReason,
    },
    /// The workload changed: every vCPU is active again.
    MajorChange {
        /// The indicator that showed it.
        change: MajorChange,
    },
    /// More threads are runnable than the active vCPUs can take: every vCPU is active again.
    Expanded {
        /// Runnable threads.
        runnable: u32,
        /// The active vCPUs before.
        active: CpuSet,
        /// The sensor that reported it; none if a regular observation showed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<OverloadSource>,
    },
    /// The vCPUs that the workload is allowed to use changed (hotplug, or its owner's affinity).
    AllowedChanged {
        /// Allowed vCPUs before.
        from: CpuSet,
        /// Allowed vCPUs now.
        to: CpuSet,
    },
    /// The machine's idle vCPUs are retained, since that helps another workload.
    Shared {
        /// The retention in force.
        retention: Retention,
        /// The workload that it helps.
        helps: WorkloadId,
        /// Evidence of that; none if it is known from before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        evidence: Option<Evidence>,
    },
    /// Another workload has proven the retention in force again, by the blocks of this one's proof, which ends by that.
    Confirmed {
        /// The other workload.
        by: WorkloadId,
        /// The retention in force.
        retention: Retention,
        /// Evidence that it helps the other workload.
        evidence: Evidence,
    },
    /// The machine's retention harms one of the workloads: it ends for all.
    Objected {
        /// The workload that it harms.
        by: WorkloadId,
        /// The retention on trial or in force.
        retention: Retention,
        /// Evidence of the harm.
        evidence: Evidence,
    },
    /// Something changed during the trial, so that its blocks say nothing.
    TrialAbandoned {
        /// The setting that was tried.
        candidate: Setting,
        /// What disturbed it.
        why: Disturbance,
    },
    /// Several workloads were confined to one vCPU and needed all of it: every vCPU is active again for this one, which
    /// came last.
    MadeRoom {
        /// The vCPU.
        cpu: CpuId,
        /// The load (in vCPUs) confined to it.
        load: f64,
        /// The active vCPUs before.
        active: CpuSet,
    },
    /// A dry run reached the point of a trial.
    WouldTry {
        /// The setting that would have been tried.
        candidate: Setting,
        /// What made it worth trying.
        why: TrialReason,
    },
}

/// What disturbed a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disturbance {
    /// The active vCPUs of another workload changed.
    Set {
        /// The other workload.
        by: WorkloadId,
        /// Its active vCPUs before.
        from: CpuSet,
        /// Its active vCPUs now.
        to: CpuSet,
    },
    /// The machine's retention changed for others' sake.
    Retention {
        /// The retention before.
        from: Retention,
        /// The retention from now on.
        to: Retention,
    },
}

/// Why retention ended without a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseReason {
    /// Idle periods are too rare to cost anything.
    Rare {
        /// Idle periods per second.
        per_s: f64,
    },
    /// Idle periods are so long that halting at once is cheaper.
    Long,
    /// The host lacks CPU time, or the quota is used up.
    Veto(Veto),
    /// It helps no workload that is left.
    Unneeded,
    /// It harms another workload.
    Objection {
        /// The workload that it harms.
        by: WorkloadId,
        /// Evidence of the harm.
        evidence: Evidence,
    },
    /// Idle vCPUs polled for longer than they are allowed to.
    PollingShare {
        /// The share of the vCPUs' time spent polling, 0..=1.
        share: f64,
        /// The most that is allowed.
        most: f64,
    },
    /// Nothing may poll.
    Forbidden(Forbidden),
}

impl ReleaseReason {
    /// Whether the reason says nothing against the retention itself, which can be resumed once it is over.
    pub(crate) fn is_passing(self) -> bool {
        matches!(self, Self::Rare { .. } | Self::Long | Self::Unneeded | Self::Forbidden(_))
    }
}

impl fmt::Display for TrialReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WakeUps { halts_per_s, wake_cost, lost } => write!(
                f,
                "idle vCPUs halted {halts_per_s:.0} times a second; at {:.1} us per wake-up that is {:.0} % of a vCPU's time",
                wake_cost.as_secs_f64() * 1e6,
                lost * 100.0
            ),
            Self::Conditions { conditions, cpu, inactive: 1 } => {
                write!(f, "vCPU {cpu} can be made inactive: {conditions}")
            }
            Self::Conditions { conditions, inactive, .. } => {
                write!(f, "{inactive} vCPUs can be made inactive: {conditions}")
            }
            Self::SmallerSetPaid { conditions, .. } => {
                write!(f, "fewer vCPUs paid, so still fewer might, although {conditions}")
            }
            Self::TrustExpired => f.write_str("it was time to prove it again"),
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set { by, from, to } => {
                write!(f, "workload {by} went from {} to {}", from.named(), to.named())
            }
            Self::Retention { from, to } => {
                write!(f, "the machine's retention went from {from} to {to} for other workloads' sake")
            }
        }
    }
}

impl fmt::Display for ReleaseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rare { per_s } => {
                write!(f, "only {per_s:.0} idle periods a second, so there is nothing to win")
            }
            Self::Long => f.write_str("idle periods are long, so halting is cheaper than waiting"),
            Self::Veto(veto) => veto.fmt(f),
            Self::Unneeded => f.write_str("it helps no workload that is left"),
            Self::Objection { by, evidence } => {
                write!(f, "it harms workload {by}: {}", evidence.signal.times(evidence.ratio))
            }
            Self::PollingShare { share, most } => write!(
                f,
                "idle vCPUs polled for {:.1} % of the machine's time, {:.1} % are allowed",
                share * 100.0,
                most * 100.0
            ),
            Self::Forbidden(why) => why.fmt(f),
        }
    }
}
