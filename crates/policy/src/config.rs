//! What a policy is built from: the machine's measured costs, its levers, and what the user allows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ConsolidationConfig, CpuId, KnownLoad, Method, Objective, Setting};

/// Where a vCPU sits, as far as the guest can see; decides which vCPUs stay active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuPlace {
    /// The vCPU described.
    pub cpu: CpuId,
    /// The lowest CPU of its physical core, which SMT siblings share.
    pub core: CpuId,
    /// The lowest CPU that shares its last-level cache.
    pub llc: CpuId,
}

/// How the policy carries out its decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Try, prove, keep or revert.
    Adaptive,
    /// Hold one setting, unproven: for benchmarks and experiments.
    Fixed(Setting),
    /// Change nothing; say what would be tried.
    DryRun,
    /// Apply ATC'14 §4 to §6 to the letter, see [`crate::Paper`].
    Paper,
}

impl Mode {
    /// The rules by which settings are chosen.
    pub fn strategy(&self) -> Strategy {
        match self {
            Self::Adaptive | Self::DryRun => Strategy::Adaptive,
            Self::Fixed(_) => Strategy::Fixed,
            Self::Paper => Strategy::Paper,
        }
    }
}

/// The rules by which settings are chosen. Only [`Strategy::Adaptive`] proves that they pay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Trials: each change must prove itself.
    #[default]
    Adaptive,
    /// One setting, held unproven.
    Fixed,
    /// The rules of ATC'14 §4 to §6.
    Paper,
}

/// What a [`crate::Policy`] is configured with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyConfig {
    /// How decisions are carried out.
    pub mode: Mode,
    /// Whether consolidation is allowed.
    pub consolidate: bool,
    /// Consolidation is off for workloads with more threads than this: moving threads one by one costs too much
    /// then.
    pub most_threads: u32,
    /// The retention method, chosen by calibration or by the user; [`Method::Halt`] means none works here.
    pub method: Method,
    /// What a halt and the wake-up from it cost, as calibrated: latency plus the waker's share.
    pub wake_cost: Duration,
    /// The waker's share: CPU time for sending an interrupt to a halted vCPU.
    pub waker_cost: Duration,
    /// What a microsecond of polling costs in microseconds of waiting, see [`Objective`].
    pub poll_price: f64,
    /// Thresholds and factors of the consolidation.
    pub consolidation: ConsolidationConfig,
    /// Topology of the vCPUs; a vCPU that is missing counts as a core of its own.
    pub places: Vec<VcpuPlace>,
    /// The shortest block for the user's progress counter, if there is one.
    pub counter_block: Option<Duration>,
    /// What earlier runs of the program showed on this machine, by kind of load; only [`Mode::Adaptive`] uses
    /// it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<KnownLoad>,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Adaptive,
            consolidate: true,
            most_threads: u32::MAX,
            method: Method::Halt,
            wake_cost: Duration::from_micros(30),
            waker_cost: Duration::ZERO,
            poll_price: Objective::default().poll_price(),
            consolidation: ConsolidationConfig::default(),
            places: Vec::new(),
            counter_block: None,
            known: Vec::new(),
        }
    }
}
