//! Demand-based coordinated scheduling (ASPLOS'13, "the paper" here): what a host's scheduler decides when it takes
//! interrupts between vCPUs for the demand for coordination. Times are nanoseconds.
//!
//! The decisions are written once, in C (`logic.h`), because the scheduler that runs them in the kernel is a BPF program.
//! Here the same functions are compiled for this machine, for the simulator and for tests.

mod native;
mod placement;
#[cfg(test)]
mod shares;
mod urgency;

pub use placement::{PcpuLoad, Placement, VcpuPlacement};
pub use urgency::{Urgency, UrgentConfig};
