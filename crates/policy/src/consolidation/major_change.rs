//! The indicators of a changed workload (paper §5).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::conditions::ConsolidationConfig;
use super::measurement::{Measurement, scale};

/// The indicator that showed a changed workload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MajorChange {
    /// The mean utilisation changed.
    Utilization {
        /// Mean utilisation in the baseline, 0..=1.
        from: f64,
        /// Mean utilisation now, 0..=1.
        to: f64,
    },
    /// The busiest vCPU is above the ceiling.
    Saturated {
        /// Its utilisation, 0..=1.
        max: f64,
    },
    /// `g_comp` changed.
    Granularity {
        /// `g_comp` in the baseline.
        from: Duration,
        /// `g_comp` now.
        to: Duration,
    },
}

impl MajorChange {
    /// Whether the mean utilisations of `now` and `base` differ by more than the allowed points.
    pub(crate) fn utilization(
        base: &Measurement,
        now: &Measurement,
        config: &ConsolidationConfig,
    ) -> Option<Self> {
        let (from, to) = (base.utilization, now.utilization);
        ((to - from).abs() > config.utilization_change).then_some(Self::Utilization { from, to })
    }

    /// Whether the busiest vCPU of `now` is above the ceiling.
    pub(crate) fn saturated(now: &Measurement, config: &ConsolidationConfig) -> Option<Self> {
        let max = now.max_utilization;
        (max > config.utilization_ceiling).then_some(Self::Saturated { max })
    }

    /// Whether `g_comp` grew or shrank from `base` to `now` by more than the allowed factors; `None` if either
    /// is unknown.
    pub(crate) fn granularity(
        base: &Measurement,
        now: &Measurement,
        config: &ConsolidationConfig,
    ) -> Option<Self> {
        let (from, to) = base.g_comp().zip(now.g_comp())?;
        let grown = to > scale(from, config.granularity_growth);
        let dropped = to < scale(from, config.granularity_drop);
        (grown || dropped).then_some(Self::Granularity { from, to })
    }
}

impl fmt::Display for MajorChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Utilization { from, to } => {
                write!(f, "mean utilisation went from {:.0} % to {:.0} %", from * 100.0, to * 100.0)
            }
            Self::Saturated { max } => write!(f, "a vCPU is {:.0} % busy", max * 100.0),
            Self::Granularity { from, to } => {
                write!(f, "computation granularity went from {from:.1?} to {to:.1?}")
            }
        }
    }
}
