//! What a policy is built from: the machine's measured costs, its levers, and what the user allows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ConsolidationConfig, CpuId, KnownLoad, Method, Objective, Setting};

/// Where a vCPU sits, as far as the guest is told; used to choose which vCPUs stay active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuPlace {
    /// The vCPU.
    pub cpu: CpuId,
    /// The lowest CPU of its physical core: SMT siblings share it.
    pub core: CpuId,
    /// The lowest CPU that shares its last-level cache.
    pub llc: CpuId,
}

/// How the policy acts on what it decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Try, prove, keep or revert.
    Adaptive,
    /// Hold one setting, unproven: for benchmarks and experiments.
    Fixed(Setting),
    /// Change nothing; say what would be tried.
    DryRun,
    /// Follow ATC'14 §4 to §6 to the letter, see [`crate::Paper`].
    Paper,
}

impl Mode {
    /// By whose rules it decides.
    pub fn strategy(&self) -> Strategy {
        match self {
            Self::Adaptive | Self::DryRun => Strategy::Adaptive,
            Self::Fixed(_) => Strategy::Fixed,
            Self::Paper => Strategy::Paper,
        }
    }
}

/// By whose rules settings are chosen. Only [`Strategy::Adaptive`] proves that they pay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Trials, each of which must prove itself.
    #[default]
    Adaptive,
    /// One setting, held.
    Fixed,
    /// The rules of ATC'14 §4 to §6.
    Paper,
}

/// Everything that a [`crate::Policy`] is told once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyConfig {
    /// Adaptive, fixed, dry or the paper's.
    pub mode: Mode,
    /// Whether vCPUs may be deactivated.
    pub consolidate: bool,
    /// The most threads that are moved between vCPUs. Where that is done thread by thread, many cost too much.
    pub most_threads: u32,
    /// The retention method, chosen by calibration or by the user; [`Method::Halt`] means none works here.
    pub method: Method,
    /// What a halt and the wake-up from it cost, as calibrated: waiting plus the waker's share.
    pub wake_cost: Duration,
    /// The waker's share of it: CPU time for sending an interrupt to a vCPU that has halted.
    pub waker_cost: Duration,
    /// What a microsecond of polling is worth in microseconds of waiting, see [`Objective`].
    pub poll_price: f64,
    /// The settings of the consolidation.
    pub consolidation: ConsolidationConfig,
    /// The vCPUs' places; vCPUs that are missing count as a core of their own.
    pub places: Vec<VcpuPlace>,
    /// The shortest block for the user's progress counter, if there is one.
    pub counter_block: Option<Duration>,
    /// What earlier runs of the program showed on this machine, by kind of load; of use to [`Mode::Adaptive`] alone.
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
