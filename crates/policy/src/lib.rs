//! The decisions of Gleaner, pure: no I/O, no clock and no randomness of its own.
//!
//! A driver (the engine on a real machine, the simulator, the replayer) hands in observations and
//! carries out the settings that come back. Terms follow the ATC'14 paper, §4 and §5.

mod cpu;
mod setting;

pub use cpu::{CpuId, CpuSet, ParseCpuListError};
pub use setting::{Method, Retention, Setting};
