//! Demand-based coordinated scheduling (ASPLOS'13, "the paper" here): what a host's scheduler decides when it takes
//! interrupts between vCPUs for the demand for coordination. Times are nanoseconds.
//!
//! The decisions are written once, in C (`logic.h`), because the scheduler that runs them in the kernel is a BPF program.
//! Here the same functions are compiled for this machine, for the simulator and for tests.

mod native;
mod placement;
pub mod record;
mod shares;
mod urgency;

pub use placement::{
    Beside, HALTS_SOON, PcpuLoad, Placement, VcpuPlacement, burst_average, burst_now, halted_soon, load_level,
};
pub use shares::{
    ACTIVE_UNIT, NORMAL_SHARE, active_average, share, virtual_time, vtime_after_sleep, woken_may_preempt,
};
pub use urgency::{Urgency, UrgentConfig};
