//! The two conditions for one vCPU fewer, and the factors that tune them (paper §5).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::measurement::{Measurement, scale};

/// Utilisation that counts as 100 % busy; accounting rarely shows the last percent.
pub(crate) const OVERLOADED: f64 = 0.99;

/// The load factor ρ and the granularity factor η, each in (0, 1].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Factors {
    pub(crate) rho: f64,
    pub(crate) eta: f64,
}

impl Default for Factors {
    fn default() -> Self {
        Self { rho: 1.0, eta: 1.0 }
    }
}

impl Factors {
    /// The floor of a factor: above 0, yet low enough to forbid consolidation.
    const MIN: f64 = 0.001;

    /// Fails unless both factors are in (0, 1].
    pub(crate) fn new(rho: f64, eta: f64) -> Result<Self, ConfigError> {
        let in_range = |f: f64| f > 0.0 && f <= 1.0;
        if !in_range(rho) {
            return Err(ConfigError { field: "rho", value: rho, range: "(0, 1]" });
        }
        if !in_range(eta) {
            return Err(ConfigError { field: "eta", value: eta, range: "(0, 1]" });
        }
        Ok(Self { rho, eta })
    }

    /// Shrinks one factor so that the measurement `justified`, which allowed a consolidation that did harm,
    /// would not allow it again: η to 0.9·min(η, `g_comp`/`l_idle`) if a vCPU was `overloaded`, else ρ to
    /// 0.9·min(ρ, `l_comp`/((N−1)·`l_idle`)).
    pub(crate) fn shrink(&mut self, justified: &Measurement, overloaded: bool) -> Factor {
        const STEP: f64 = 0.9;
        let ratio = |part: Option<Duration>, whole: Option<Duration>, n: usize| match (part, whole) {
            (Some(part), Some(whole)) if !whole.is_zero() && n > 0 => {
                part.as_secs_f64() / (whole.as_secs_f64() * n as f64)
            }
            _ => 1.0,
        };
        // The inner minimum includes the old factor, so the floor must not raise one that started below it.
        let shrunk = |old: f64, ratio: f64| (STEP * old.min(ratio)).max(Self::MIN.min(old));
        if overloaded {
            let from = self.eta;
            self.eta = shrunk(from, ratio(justified.g_comp(), justified.l_idle(), 1));
            Factor::Eta { from, to: self.eta }
        } else {
            let from = self.rho;
            let others = justified.active.saturating_sub(1);
            self.rho = shrunk(from, ratio(justified.l_comp(), justified.l_idle(), others));
            Factor::Rho { from, to: self.rho }
        }
    }
}

/// The factor that a roll-back shrank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Factor {
    /// The load factor ρ.
    Rho {
        /// ρ before the roll-back.
        from: f64,
        /// ρ after it.
        to: f64,
    },
    /// The granularity factor η.
    Eta {
        /// η before the roll-back.
        from: f64,
        /// η after it.
        to: f64,
    },
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rho { from, to } => write!(f, "load factor {from:.3} -> {to:.3}"),
            Self::Eta { from, to } => write!(f, "granularity factor {from:.3} -> {to:.3}"),
        }
    }
}

/// The limits of consolidation and the thresholds of a major change. The defaults are the paper's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsolidationConfig {
    /// The initial load factor ρ, in (0, 1].
    pub rho: f64,
    /// The initial granularity factor η, in (0, 1].
    pub eta: f64,
    /// Threads that compute longer than this between two synchronisation points are not consolidated: moving
    /// them costs cache locality, and blocking rarely costs them much. 3 ms is the base slice of Linux's fair
    /// class on a few CPUs (kernel/sched/fair.c, `sysctl_sched_base_slice` times its log2 scaling).
    pub min_time_slice: Duration,
    /// A change of the mean utilisation by more than this, in points (0.20: from 30 % to over 50 %), is a major
    /// change. Not relative, because 20 % of a nearly idle vCPU is noise and calls for no other set.
    pub utilization_change: f64,
    /// A vCPU busier than this (0..=1) is a major change.
    pub utilization_ceiling: f64,
    /// `g_comp` growing by more than this factor is a major change; at least 1.
    pub granularity_growth: f64,
    /// `g_comp` shrinking below this share of the recorded one is a major change; in [0, 1].
    pub granularity_drop: f64,
    /// The share by which total utilisation must fall to count as a decrease, in [0, 1); strategy `paper` only.
    /// The paper names no margin, but without one the noise of a constant load would roll back every other
    /// consolidation.
    pub drop_tolerance: f64,
}

impl Default for ConsolidationConfig {
    fn default() -> Self {
        Self {
            rho: 1.0,
            eta: 1.0,
            min_time_slice: Duration::from_millis(3),
            utilization_change: 0.20,
            utilization_ceiling: 0.90,
            granularity_growth: 2.0,
            granularity_drop: 0.5,
            drop_tolerance: 0.05,
        }
    }
}

/// A field of [`ConsolidationConfig`] that is out of range.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigError {
    field: &'static str,
    value: f64,
    range: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "consolidation: `{}` is {}, outside {}", self.field, self.value, self.range)
    }
}

impl std::error::Error for ConfigError {}

impl ConsolidationConfig {
    /// The initial factors; fails on the first field that is out of range.
    pub(crate) fn factors(&self) -> Result<Factors, ConfigError> {
        for (field, value, ok, range) in [
            ("utilization_change", self.utilization_change, self.utilization_change > 0.0, "(0, inf)"),
            (
                "utilization_ceiling",
                self.utilization_ceiling,
                (0.0..=1.0).contains(&self.utilization_ceiling),
                "[0, 1]",
            ),
            ("granularity_growth", self.granularity_growth, self.granularity_growth >= 1.0, "[1, inf)"),
            (
                "granularity_drop",
                self.granularity_drop,
                (0.0..=1.0).contains(&self.granularity_drop),
                "[0, 1]",
            ),
            ("drop_tolerance", self.drop_tolerance, (0.0..1.0).contains(&self.drop_tolerance), "[0, 1)"),
        ] {
            if !ok {
                return Err(ConfigError { field, value, range });
            }
        }
        Factors::new(self.rho, self.eta)
    }
}

/// One inequality `left <= right`. A side is `None` if its divisor was 0; then the check does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The required length.
    pub left: Option<Duration>,
    /// The available length.
    pub right: Option<Duration>,
    /// Whether both are known and `left <= right`.
    pub holds: bool,
}

impl Check {
    fn new(left: Option<Duration>, right: Option<Duration>) -> Self {
        let holds = matches!((left, right), (Some(left), Some(right)) if left <= right);
        Self { left, right, holds }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.left, self.right) {
            (Some(left), Some(right)) => {
                write!(f, "{left:.1?} {} {right:.1?}", if self.holds { "<=" } else { ">" })
            }
            (Some(left), None) => write!(f, "{left:.1?} against unknown idle length"),
            (None, Some(right)) => write!(f, "unknown against {right:.1?}"),
            (None, None) => f.write_str("unknown, no idle period"),
        }
    }
}

/// The two conditions of §5 for a smaller set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// (1) `l_comp` ≤ ρ·(N−1)·`l_idle`: the other vCPUs have idle time for one vCPU's computation; for k vCPUs
    /// fewer, k·`l_comp` ≤ ρ·(N−k)·`l_idle`.
    pub load: Check,
    /// (2) `g_comp` ≤ min(η·`l_idle`, `min_time_slice`): its pieces fit into their idle periods.
    pub granularity: Check,
}

impl Conditions {
    /// Whether both conditions hold.
    pub fn hold(&self) -> bool {
        self.load.holds && self.granularity.holds
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |check: &Check| if check.holds { "fits" } else { "does not fit" };
        write!(
            f,
            "the load {} the other vCPUs' idle time ({}) and its granularity {} their idle periods ({})",
            fits(&self.load),
            self.load,
            fits(&self.granularity),
            self.granularity
        )
    }
}

/// Evaluates both conditions for one vCPU fewer. On one vCPU condition (1) leaves no room.
pub(crate) fn conditions(m: &Measurement, factors: &Factors, config: &ConsolidationConfig) -> Conditions {
    conditions_for(m.active.saturating_sub(1), m, factors, config)
}

/// Evaluates both conditions for a set of `to` vCPUs: the computation of all other vCPUs must fit into the idle
/// time of these. With ρ = 1 that means that the CPU time in use fits on `to` vCPUs.
pub(super) fn conditions_for(
    to: usize,
    m: &Measurement,
    factors: &Factors,
    config: &ConsolidationConfig,
) -> Conditions {
    let inactive = m.active.saturating_sub(to) as f64;
    let load = m.l_comp().map(|comp| scale(comp, inactive));
    let room = m.l_idle().map(|idle| scale(idle, factors.rho * to as f64));
    let piece = m.l_idle().map(|idle| scale(idle, factors.eta).min(config.min_time_slice));
    Conditions { load: Check::new(load, room), granularity: Check::new(m.g_comp(), piece) }
}

/// The fewest vCPUs for which both conditions hold; `None` if no smaller set will do.
pub(super) fn fewest(m: &Measurement, factors: &Factors, config: &ConsolidationConfig) -> Option<usize> {
    let holds = |to: &usize| conditions_for(*to, m, factors, config).hold();
    // More vCPUs leave more room: if not even one fewer will do, no smaller set does.
    m.active.checked_sub(1).filter(|to| *to > 0 && holds(to))?;
    (1..m.active).find(holds)
}
