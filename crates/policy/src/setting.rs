//! What the policy can ask of a machine: which vCPUs are active, and how their idle periods are retained.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::CpuSet;

/// How an idle vCPU is kept from halting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Not retained: the idle vCPU halts, as in the untouched system.
    Halt,
    /// The idle loop polls up to a limit (`guest_halt_poll_ns`; kernel: drivers/cpuidle/governors/haltpoll.c).
    Haltpoll,
    /// A latency request of 0 makes the idle loop poll without bound (`pm_qos_resume_latency_us` = `n/a`).
    QosPoll,
    /// A yield thread in `SCHED_IDLE` on each active vCPU, as in the paper's §6. The wake-up still sends an
    /// IPI.
    Yield,
    /// A yield thread at nice 19 beside a workload in `SCHED_BATCH`: the wake-up sends no IPI.
    YieldIpiFree,
}

impl Method {
    /// Every method, cheapest first.
    pub const ALL: [Self; 5] = [Self::Halt, Self::Haltpoll, Self::QosPoll, Self::YieldIpiFree, Self::Yield];

    /// The name used on the command line, in the journal and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Halt => "halt",
            Self::Haltpoll => "haltpoll",
            Self::QosPoll => "qos-poll",
            Self::Yield => "yield",
            Self::YieldIpiFree => "yield-ipi-free",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Method {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|m| m.name() == name).ok_or_else(|| {
            format!("`{name}` is not a retention method; use one of {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// Retention of idle vCPUs: a method and, if the method has one, a time limit per idle period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Retention {
    /// How an idle vCPU is retained.
    pub method: Method,
    /// How long one idle period may be retained before the vCPU halts. Zero with [`Method::Halt`]; ignored by
    /// [`Method::QosPoll`].
    pub limit: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self::NONE
    }
}

impl Retention {
    /// No retention, as in the untouched system.
    pub const NONE: Self = Self { method: Method::Halt, limit: Duration::ZERO };

    /// The one of the two that keeps idle vCPUs awake for longer.
    #[must_use]
    pub(crate) fn stronger(self, other: Self) -> Self {
        // The methods that act on the machine are in the order of their strength.
        if (self.method, self.limit) < (other.method, other.limit) { other } else { self }
    }

    /// Whether idle vCPUs are kept from halting at all.
    pub fn is_on(self) -> bool {
        self.method != Method::Halt
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.method {
            Method::Halt | Method::QosPoll => write!(f, "{}", self.method),
            _ => write!(f, "{}:{}us", self.method, self.limit.as_micros()),
        }
    }
}

/// The whole state that Gleaner controls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Setting {
    /// The active vCPUs, on which the workload is allowed to run. Never empty.
    pub active: CpuSet,
    /// What happens when an active vCPU becomes idle.
    pub retention: Retention,
}

impl Setting {
    /// The untouched system: every vCPU of `all` active, none retained.
    pub fn untouched(all: &CpuSet) -> Self {
        Self { active: all.clone(), retention: Retention::NONE }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.active.named(), self.retention)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_set_is_a_word_in_a_sentence() {
        assert_eq!(Setting::untouched(&CpuSet::new()).to_string(), "no vCPU with halt");
        assert_eq!(Setting::untouched(&CpuSet::first(2)).to_string(), "vCPUs 0-1 with halt");
    }
}
