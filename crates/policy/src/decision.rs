//! What the policy answers: the setting to put in force, when to look again, and why.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::guard::{Purpose, Verdict};
use crate::{
    AfterRollBack, Conditions, CpuId, CpuSet, Evidence, MajorChange, OverloadSource, Refutation, Setting,
    Veto,
};

/// The answer to one observation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// What must be in force from now on.
    pub setting: Setting,
    /// Whether the machine must see to it that no vCPU goes on polling by the limit of an earlier setting. A vCPU
    /// drops its poll limit only at a halt, and one whose idle periods are short may not halt for long.
    pub reset_poll_limits: bool,
    /// Observe again after this long.
    pub next: Duration,
    /// Or earlier, if this happens.
    pub watch: Option<Watch>,
    /// Whether what threads wait after wake-ups should be measured meanwhile, where it can be: in trials, which need it,
    /// and where a setting is only held, so that somebody can measure it.
    pub sense_waiting: bool,
    /// What was decided just now, and why; empty when nothing was.
    pub events: Vec<Event>,
}

/// What to watch for between observations: the number of runnable threads on the machine, which is cheap to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// How often to sample.
    pub every: Duration,
    /// Observe at once when the number is at least this...
    pub at_least: Option<u32>,
    /// ...or at most this...
    pub at_most: Option<u32>,
    /// ...this many times in a row.
    pub times: u32,
    /// Where the kernel reports overload by itself ([`crate::OverloadSource::RunQueues`]): observe at once when there are
    /// `at_least` for this long.
    pub persistence: Duration,
}

impl Watch {
    /// Whether a sample of `runnable` threads counts.
    pub fn matches(&self, runnable: u32) -> bool {
        self.at_least.is_some_and(|n| runnable >= n) || self.at_most.is_some_and(|n| runnable <= n)
    }
}

/// Why a trial began.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case")]
pub enum Why {
    /// Idle vCPUs halt so often that waking them costs a share of the time.
    WakeUps {
        /// Idle periods per second that a wake-up of the workload can have ended, each a halt.
        halts_per_s: f64,
        /// What each costs.
        wake_cost: Duration,
        /// Share of the wall time of one vCPU that is lost with it.
        lost: f64,
    },
    /// Both conditions of §5 hold.
    Conditions {
        /// With these numbers.
        conditions: Conditions,
        /// The vCPU to deactivate; of several, the one that is missed least.
        cpu: CpuId,
        /// How many are deactivated.
        spared: usize,
    },
    /// A smaller set paid, and half of that may pay more, although not both conditions of §5 hold.
    CutPaid {
        /// Their numbers.
        conditions: Conditions,
        /// How many vCPUs are deactivated.
        spared: usize,
    },
    /// The trust in what was proven before is used up.
    TrustExpired,
}

/// Something that the policy decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A hypothesis goes on trial.
    TrialStarted {
        /// The setting without the change.
        baseline: Setting,
        /// The setting with it.
        candidate: Setting,
        /// New, or proven before.
        purpose: Purpose,
        /// What suggested it.
        why: Why,
    },
    /// The trial ended.
    TrialEnded {
        /// The setting that was tried.
        candidate: Setting,
        /// New, or proven before.
        purpose: Purpose,
        /// The outcome.
        verdict: Verdict,
        /// The setting in force from now on.
        kept: Setting,
        /// When the question may be asked again, since the start.
        again_at: Duration,
    },
    /// The strategy `paper` deactivated one vCPU: both conditions of §5 hold.
    Deactivated {
        /// Which one.
        cpu: CpuId,
        /// The active vCPUs from now on.
        active: CpuSet,
        /// With these numbers.
        conditions: Conditions,
    },
    /// §5's roll-back: vCPUs that were deactivated are active again.
    RolledBack {
        /// The active vCPUs from now on.
        active: CpuSet,
        /// What spoke against the smaller set.
        refutation: Refutation,
        /// The factor that was adjusted, or where the search goes on.
        then: AfterRollBack,
    },
    /// What was proven before is in force again, to be proven again soon.
    Resumed {
        /// The setting.
        setting: Setting,
        /// The evidence of an earlier run; none if this run has proven it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<Evidence>,
    },
    /// The retention limit follows the idle lengths.
    LimitChanged {
        /// Before.
        from: Duration,
        /// Now.
        to: Duration,
    },
    /// Retention ended: it cannot pay here now.
    Released {
        /// The reason.
        why: ReleaseReason,
    },
    /// The workload changed: every vCPU is active again.
    MajorChange {
        /// Which indicator said so.
        change: MajorChange,
    },
    /// More threads want to run than the active vCPUs can take: every vCPU is active again.
    Expanded {
        /// Runnable threads.
        runnable: u32,
        /// Active vCPUs until now.
        active: CpuSet,
        /// The sensor that reported it; none if an observation that was due showed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<OverloadSource>,
    },
    /// The vCPUs that the workload may use changed (hotplug, or its owner's affinity).
    AllowedChanged {
        /// Before.
        from: CpuSet,
        /// Now.
        to: CpuSet,
    },
    /// A dry run: what would have been tried.
    WouldTry {
        /// The setting.
        candidate: Setting,
        /// What suggested it.
        why: Why,
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
    /// Idle periods are so long that halting is cheaper.
    Long,
    /// The host is short of CPU time, or the quota is.
    Veto(Veto),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WakeUps { halts_per_s, wake_cost, lost } => write!(
                f,
                "idle vCPUs halted {halts_per_s:.0} times a second; at {:.1} us per wake-up that is {:.0} % of a vCPU's time",
                wake_cost.as_secs_f64() * 1e6,
                lost * 100.0
            ),
            Self::Conditions { conditions, cpu, spared: 1 } => {
                write!(f, "vCPU {cpu} can be spared: {conditions}")
            }
            Self::Conditions { conditions, spared, .. } => {
                write!(f, "{spared} vCPUs can be spared: {conditions}")
            }
            Self::CutPaid { conditions, .. } => {
                write!(f, "fewer vCPUs paid, so still fewer may, although {conditions}")
            }
            Self::TrustExpired => f.write_str("it was time to prove it again"),
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
        }
    }
}
