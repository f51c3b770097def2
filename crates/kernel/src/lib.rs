//! What Linux offers to Gleaner: sensors (read), levers (write, always reversible) and the machine's topology.
//!
//! Every path goes through a [`Root`], so that tests read a fake tree in place of `/proc` and `/sys`.

pub mod cgroup;
pub mod lever;

pub mod capability;
pub mod hypervisor;
pub mod idle;
pub mod interrupts;
pub mod preempt;
pub mod stat;
pub mod topology;
pub mod workload;

mod error;
mod file;
mod root;
#[cfg(test)]
mod testing;

pub use error::KernelError;
pub use root::Root;
