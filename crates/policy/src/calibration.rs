//! What a wake-up costs on this machine, by method and by where waker and wakee run (paper Table 2).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Method;

/// Where the woken thread's vCPU is and what it is doing: settings A to D of the paper's Table 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// A: waker and wakee share a vCPU.
    SameVcpu,
    /// B: another vCPU, kept awake.
    AcrossAwake,
    /// C: another vCPU, idle: halted, unless the retention method in force prevents that.
    AcrossHalting,
    /// D: another vCPU, busy with work that the woken thread must preempt.
    AcrossBusy,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SameVcpu => "same vCPU",
            Self::AcrossAwake => "other vCPU, awake",
            Self::AcrossHalting => "other vCPU, idle",
            Self::AcrossBusy => "other vCPU, busy",
        })
    }
}

/// The measured time from the waker's call to the wakee running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeCost {
    /// Lowest of the measurements.
    pub min: Duration,
    /// Median of the measurements.
    pub median: Duration,
    /// 99th percentile of the measurements.
    pub p99: Duration,
    /// The number of wake-ups measured.
    pub n: u32,
}

/// The calibration table, serialised as a list of entries ordered by method and placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Entry>", into = "Vec<Entry>")]
pub struct WakeCosts(BTreeMap<(Method, Placement), WakeCost>);

#[derive(Clone, Serialize, Deserialize)]
struct Entry {
    method: Method,
    placement: Placement,
    #[serde(flatten)]
    cost: WakeCost,
}

impl From<Vec<Entry>> for WakeCosts {
    fn from(entries: Vec<Entry>) -> Self {
        Self(entries.into_iter().map(|e| ((e.method, e.placement), e.cost)).collect())
    }
}

impl From<WakeCosts> for Vec<Entry> {
    fn from(costs: WakeCosts) -> Self {
        costs.iter().map(|(method, placement, cost)| Entry { method, placement, cost }).collect()
    }
}

/// The assumed cost of waking a halted vCPU where none was measured: between the 17 µs of a vCPU that is still
/// awake and the 96 µs of one whose pCPU is taken (paper Table 2), near its 37 µs for a halted one.
pub const ASSUMED_HALT_COST: Duration = Duration::from_micros(30);

/// The CPU time that a waker is assumed to spend on waking a halted vCPU, which costs `halt_cost` in all. In ten calibrations
/// of three machines it was 0.13 to 0.42 of that, in most of them 0.27.
pub fn assumed_waker_cost(halt_cost: Duration) -> Duration {
    halt_cost / 4
}

impl WakeCosts {
    /// Adds a measurement, replacing one for the same method and placement.
    pub fn insert(&mut self, method: Method, placement: Placement, cost: WakeCost) {
        self.0.insert((method, placement), cost);
    }

    /// The measurement for `method` and `placement`.
    pub fn get(&self, method: Method, placement: Placement) -> Option<WakeCost> {
        self.0.get(&(method, placement)).copied()
    }

    /// All measurements, ordered by method and placement.
    pub fn iter(&self) -> impl Iterator<Item = (Method, Placement, WakeCost)> + '_ {
        self.0.iter().map(|(&(method, placement), &cost)| (method, placement, cost))
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The median cost of waking a thread on an idle vCPU with `method` in force
    /// ([`Placement::AcrossHalting`]). A `method` that does not work here costs as much as [`Method::Halt`].
    pub fn across(&self, method: Method) -> Option<Duration> {
        self.get(method, Placement::AcrossHalting).map(|cost| cost.median)
    }

    /// The median cost of waking a halted vCPU, or [`ASSUMED_HALT_COST`] if it was not measured.
    pub fn halt_cost(&self) -> Duration {
        self.across(Method::Halt).unwrap_or(ASSUMED_HALT_COST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_survives_json_as_a_list() {
        let cost = |us| {
            let median = Duration::from_micros(us);
            WakeCost { min: median / 2, median, p99: median * 3, n: 1000 }
        };
        let mut costs = WakeCosts::default();
        costs.insert(Method::Halt, Placement::AcrossHalting, cost(37));
        costs.insert(Method::YieldIpiFree, Placement::AcrossHalting, cost(6));
        let json = serde_json::to_value(&costs).unwrap();
        assert_eq!(json[1]["method"], "yield-ipi-free");
        assert_eq!(json[1]["placement"], "across-halting");
        assert_eq!(serde_json::from_value::<WakeCosts>(json).unwrap(), costs);
    }
}
