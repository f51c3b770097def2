//! When polling is out of the question, because it would take time from others that have work.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A steal share of at least this starts a veto.
const STEAL_ENTER: f64 = 0.10;
/// A steal share below this ends it. The gap between the two prevents flapping.
const STEAL_LEAVE: f64 = 0.05;
/// Any throttling starts a veto; this many observations in a row without throttling end it.
const UNTHROTTLED_OBSERVATIONS: u32 = 3;

/// What forbids retention.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Veto {
    /// Other VMs want the pCPUs: polling would take them away and make the steal worse.
    Steal {
        /// Steal as a share of the vCPUs' time, beyond what waking halted vCPUs explains, 0..=1.
        share: f64,
    },
    /// The workload's cgroup has used up its CPU quota, which polling would spend, too.
    Throttled {
        /// The share of the time in which it was throttled, 0..=1; 0 in the first few observations after the
        /// throttling.
        share: f64,
    },
}

impl fmt::Display for Veto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steal { share } => write!(
                f,
                "{:.1} % of the time is stolen beyond what waking halted vCPUs takes",
                share * 100.0
            ),
            Self::Throttled { share } => {
                write!(f, "the cgroup's CPU quota is used up {:.1} % of the time", share * 100.0)
            }
        }
    }
}

/// Decides, with hysteresis, whether retention is forbidden.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct VetoGate {
    stolen: bool,
    /// Observations without throttling still needed.
    throttled_for: u32,
}

impl VetoGate {
    /// Takes the shares (0..=1) of one observation and returns what forbids retention now. Throttling comes
    /// first: the guest itself can fix it.
    pub(crate) fn step(&mut self, steal_share: f64, throttled_share: f64) -> Option<Veto> {
        let threshold = if self.stolen { STEAL_LEAVE } else { STEAL_ENTER };
        self.stolen = steal_share >= threshold;
        self.throttled_for = if throttled_share > 0.0 {
            UNTHROTTLED_OBSERVATIONS
        } else {
            self.throttled_for.saturating_sub(1)
        };
        if self.throttled_for > 0 {
            Some(Veto::Throttled { share: throttled_share })
        } else {
            self.stolen.then_some(Veto::Steal { share: steal_share })
        }
    }

    /// Whether the last observation forbids retention.
    pub(crate) fn is_closed(&self) -> bool {
        self.stolen || self.throttled_for > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_starts_a_veto_at_10_percent_and_ends_it_below_5() {
        let mut gate = VetoGate::default();
        let vetoes = [0.0, 0.09, 0.10, 0.07, 0.05, 0.04, 0.09, 0.2]
            .map(|steal| matches!(gate.step(steal, 0.0), Some(Veto::Steal { .. })));
        assert_eq!(vetoes, [false, false, true, true, true, false, false, true]);
    }

    #[test]
    fn any_throttling_starts_a_veto_that_outlasts_it_by_three_observations() {
        let mut gate = VetoGate::default();
        let vetoes = [0.0, 0.001, 0.0, 0.0, 0.0, 0.0]
            .map(|throttled| matches!(gate.step(0.0, throttled), Some(Veto::Throttled { .. })));
        assert_eq!(vetoes, [false, true, true, true, false, false]);
        assert!(!gate.is_closed());
    }

    #[test]
    fn throttling_is_named_before_steal_and_steal_is_not_lost() {
        let mut gate = VetoGate::default();
        assert_eq!(gate.step(0.5, 0.2), Some(Veto::Throttled { share: 0.2 }));
        let after: Vec<_> = (0..3).map(|_| gate.step(0.06, 0.0)).collect();
        assert_eq!(after[2], Some(Veto::Steal { share: 0.06 }));
        assert!(gate.is_closed());
        assert_eq!(
            after[2].unwrap().to_string(),
            "6.0 % of the time is stolen beyond what waking halted vCPUs takes"
        );
    }
}
