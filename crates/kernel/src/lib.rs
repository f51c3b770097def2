//! What Linux offers to Gleaner: sensors (read), levers (write, always reversible) and the machine's topology.
//!
//! Every path goes through a [`Root`], so that tests read a fake tree in place of `/proc` and `/sys`.

pub mod cgroup;
pub mod lever;

mod error;
mod root;

pub use error::KernelError;
pub use root::Root;
