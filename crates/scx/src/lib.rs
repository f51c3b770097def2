//! Demand-based coordinated scheduling (ASPLOS'13) on KVM hosts with `sched_ext`: a weight-fair scheduler in which vCPUs
//! that must answer an interrupt, or have just sent one, run first.
//!
//! The decisions are those of [`gleaner_coordination`]; the BPF programs (`src/bpf`, GPL-2.0-only) include the same C
//! functions. [`Scheduler`] loads them. Whenever it ends, however it ends, the kernel's own scheduler takes over.

mod auto;
mod autos;
mod check;
mod control;
mod error;
mod options;
mod plain;
mod record;
mod scheduler;
mod stats;

pub use auto::{Decision, Why};
pub use autos::Autos;
pub use check::check;
pub use control::{answer, changed};
pub use error::ScxError;
pub use options::{Options, VmRules};
pub use scheduler::{Ended, Scheduler, VmSeen};
pub use stats::Stats;

gleaner_trace::skeleton!(skeleton, "scx_gleaner.skel.rs");
