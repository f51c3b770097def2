//! Machines: described, run under QEMU, controlled, and never left behind.

mod channel;
mod console;
mod guest;
mod lab;
mod process;
mod qemu;
mod qmp;
mod spec;
mod step;

pub use guest::{Guest, Job};
pub use lab::Lab;
pub use spec::{Cpus, GUEST_ADDRESS, HOST_ADDRESS, VmSpec};
pub use step::{Output, Step};
