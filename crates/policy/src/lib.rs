//! The decisions of Gleaner, pure: no I/O, no clock and no randomness of its own.
//!
//! A driver (the engine on a real machine, the simulator, the replayer) passes in observations and carries out
//! the settings that it gets back. Terms are those of the ATC'14 paper, §4 and §5.

mod arbiter;
mod backoff;
mod budget;
mod cadence;
mod calibration;
mod config;
mod consolidation;
mod contention;
mod cpu;
mod decision;
mod evidence;
mod experiment;
mod fixed;
mod guard;
mod idle_histogram;
mod memory;
mod noise;
mod objective;
mod observation;
mod overload;
mod paper;
mod policy;
mod progress;
mod retention;
mod setting;
mod workload_id;

pub use arbiter::{Arbiter, ArbiterConfig, Forbidden, Stake, Step};
pub use calibration::{ASSUMED_HALT_COST, Placement, WakeCost, WakeCosts, assumed_waker_cost};
pub use config::{Mode, PolicyConfig, Strategy, VcpuPlace};
pub use consolidation::{
    AfterRollBack, Check, Conditions, ConfigError, ConsolidationConfig, Factor, MajorChange, Measurement,
    Refutation,
};
pub use cpu::{CpuId, CpuSet, ParseCpuListError};
pub use decision::{Decision, Disturbance, Event, ReleaseReason, Sense, TrialReason, Watch};
pub use evidence::Evidence;
pub use experiment::{Experiment, Laboratory};
pub use fixed::Fixed;
pub use guard::{Purpose, Verdict, block_lengths};
pub use memory::{KnownLoad, KnownRetention, KnownVcpus, Learned, Outcome, is_same_kind};
pub use objective::Objective;
pub use observation::{Observation, Sockets, VcpuInterval, Waiting, WaitingSource, WorkloadInterval};
pub use overload::{Overload, OverloadSource};
pub use paper::Paper;
pub use policy::Policy;
pub use progress::{Block, Difference, Signal};
pub use retention::Veto;
pub use setting::{Method, Retention, Setting};
pub use workload_id::WorkloadId;
