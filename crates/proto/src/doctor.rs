//! The report of `gleaner doctor`: the cost of wake-ups on this machine, the remedies, and what the user should
//! know.

use std::fmt;

use gleaner_policy::{CpuId, CpuSet, Method, Placement, WakeCost, WakeCosts};
use serde::{Deserialize, Serialize};

/// The version of the format that this crate writes.
pub const VERSION: u32 = 1;

/// Everything that `gleaner doctor` found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The machine measured.
    pub machine: Machine,
    /// Every measured wake-up cost (paper Table 2), in the order of placement, method and pair.
    pub cells: Vec<Cell>,
    /// What was not measured, as sentences with the reason.
    pub not_measured: Vec<String>,
    /// The retention method that suits this machine; [`Method::Halt`] if none does.
    pub method: Method,
    /// The reason for the method: a sentence with the numbers.
    pub reason: String,
    /// Steal as a share (0..=1) of the vCPUs' time during the measurement.
    pub steal_share: f64,
    /// Every sensor and lever, available or not.
    pub capabilities: Vec<Capability>,
    /// What the user should know.
    pub findings: Vec<Finding>,
    /// What Gleaner can gain here: one sentence.
    pub gain: String,
}

/// The machine, as far as it affects wake-ups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// The hypervisor's name.
    pub hypervisor: String,
    /// Online vCPUs.
    pub vcpus: CpuSet,
    /// The kernel's preemption model.
    pub preemption: String,
    /// Where the model was found, or why it is unknown.
    pub preemption_source: String,
    /// The cpuidle driver, if there is one.
    pub cpuidle_driver: Option<String>,
    /// The cpuidle governor, if there is one.
    pub cpuidle_governor: Option<String>,
}

/// One cell of the table: a placement, a method and a pair of vCPUs. Times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The placement of waker and wakee.
    pub placement: Placement,
    /// The retention method in force.
    pub method: Method,
    /// One vCPU of the pair; wake-ups were measured in both directions.
    pub waker: CpuId,
    /// The other vCPU of the pair; not involved with [`Placement::SameVcpu`].
    pub wakee: CpuId,
    /// Number of wake-ups measured.
    pub n: u32,
    /// Lowest latency, in ns.
    pub min_ns: u64,
    /// Median latency, in ns.
    pub median_ns: u64,
    /// 99th percentile of latency, in ns.
    pub p99_ns: u64,
    /// Median CPU time that one wake-up cost its waker, in ns.
    pub waker_cpu_ns: u64,
}

/// A sensor or lever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// `sensor` or `lever`.
    pub kind: String,
    /// Name of the sensor or lever.
    pub name: String,
    /// The reason and the remedy if it is not available here; `None` if it is.
    pub absent: Option<String>,
}

/// Something that the user should know; its text includes the remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum Finding {
    /// A program relies on a latency request that has no effect.
    LatencyRequestIgnored {
        /// The request, as part of a sentence.
        request: String,
    },
    /// The haltpoll governor is in use but its polling is off.
    HaltpollOff,
    /// An idle state is disabled, but the governor ignores that.
    DisabledStateIgnored {
        /// Name of the state.
        state: String,
        /// A vCPU on which it is disabled.
        cpu: CpuId,
    },
    /// The preemption model is not known.
    PreemptionUnknown {
        /// The reason.
        why: String,
    },
    /// The kernel preempts lazily.
    PreemptionLazy,
    /// There was steal time while the costs were measured.
    Steal {
        /// Steal as a share of the time, 0..=1.
        share: f64,
    },
    /// Other programs ran while the costs were measured: the calibration is doubtful.
    Disturbed {
        /// The share of the samples that found them, 0..=1.
        share: f64,
    },
    /// The calibration is doubtful; runs continue to use an earlier one of this boot.
    EarlierKept {
        /// Method chosen by the earlier calibration.
        method: Method,
        /// The cost of a halt and the wake-up from it by the earlier calibration, in ns.
        halt_cost_ns: u64,
    },
    /// A dead holder left changes.
    LeasesLeft {
        /// PID of the holder.
        pid: u32,
        /// The number of changes.
        changes: usize,
    },
    /// The lease file cannot be read.
    LeasesUnreadable {
        /// The error's text.
        error: String,
    },
    /// A setting changed for the measurement could not be restored.
    LeftBehind {
        /// A sentence with the value and the error.
        detail: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LatencyRequestIgnored { request } => write!(
                f,
                "{request}, but there is no cpuidle driver that would heed it: the request changes nothing; on KVM, \
                 `modprobe cpuidle-haltpoll force=1` loads a driver"
            ),
            Self::HaltpollOff => f.write_str(
                "the haltpoll governor is in charge but its polling is off (guest_halt_poll_ns = 0): each idle \
                 period halts at once; Gleaner turns it on while that pays",
            ),
            Self::DisabledStateIgnored { state, cpu } => write!(
                f,
                "the idle state `{state}` is disabled on vCPU {cpu}, but the haltpoll governor uses it all the same: \
                 another governor (menu, teo) would heed it"
            ),
            Self::PreemptionUnknown { why } => write!(
                f,
                "the kernel's preemption model is unknown ({why}): which kind of yield thread is cheaper is only \
                 known by measurement"
            ),
            Self::PreemptionLazy => f.write_str(
                "the kernel preempts lazily: a woken thread might wait for the next tick behind a yield thread of \
                 normal priority, so `yield-ipi-free` can be slow; believe the table",
            ),
            Self::Steal { share } => write!(
                f,
                "{:.1} % of the vCPUs' time went to others on the host during the measurement: the costs are those \
                 of a busy host, and keeping vCPUs awake would take time from them",
                share * 100.0
            ),
            Self::Disturbed { share } => write!(
                f,
                "other programs were running in {:.0} % of the samples during the measurement, so vCPUs did not always \
                 halt: the calibration is doubtful, its costs might be too low; run `gleaner doctor --quick` when the \
                 machine is idle",
                share * 100.0
            ),
            Self::EarlierKept { method, halt_cost_ns } => write!(
                f,
                "`gleaner run` goes on using what was measured since boot on a quieter machine: {method}, with {:.1} us \
                 for a halt and the wake-up from it",
                *halt_cost_ns as f64 / 1e3
            ),
            Self::LeasesLeft { pid, changes } => write!(
                f,
                "process {pid} died before it put back {changes} {}; the next gleaner that changes anything, or \
                 `gleaner restore`, does",
                if *changes == 1 { "change" } else { "changes" }
            ),
            Self::LeasesUnreadable { error } => f.write_str(error),
            Self::LeftBehind { detail } => write!(f, "could not be put back after the measurement: {detail}"),
        }
    }
}

/// The table without the pairs: the pair with the highest median stands for a placement and method, since a
/// policy that expects the best pair would be disappointed by the others.
pub fn costs(cells: &[Cell]) -> WakeCosts {
    let ns = std::time::Duration::from_nanos;
    let mut costs = WakeCosts::default();
    for cell in cells {
        let cost =
            WakeCost { min: ns(cell.min_ns), median: ns(cell.median_ns), p99: ns(cell.p99_ns), n: cell.n };
        if costs.get(cell.method, cell.placement).is_none_or(|known| known.median < cost.median) {
            costs.insert(cell.method, cell.placement, cost);
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(method: Method, wakee: u32, median_ns: u64) -> Cell {
        Cell {
            placement: Placement::AcrossHalting,
            method,
            waker: CpuId(0),
            wakee: CpuId(wakee),
            n: 10,
            min_ns: 1,
            median_ns,
            p99_ns: median_ns * 2,
            waker_cpu_ns: 5,
        }
    }

    #[test]
    fn the_most_expensive_pair_stands_for_a_method() {
        let cells =
            [cell(Method::Halt, 1, 20_000), cell(Method::Halt, 2, 50_000), cell(Method::Halt, 3, 30_000)];
        assert_eq!(costs(&cells).halt_cost(), std::time::Duration::from_micros(50));
    }

    #[test]
    fn findings_keep_their_names_in_json() {
        let finding = Finding::Steal { share: 0.125 };
        let json = serde_json::to_value(&finding).unwrap();
        assert_eq!(json["finding"], "steal");
        assert_eq!(serde_json::from_value::<Finding>(json).unwrap(), finding);
        assert!(finding.to_string().starts_with("12.5 % of the vCPUs' time"));
    }
}
