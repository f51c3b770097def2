//! What a KVM host spends on its guests: VM exits by reason, waiting for pCPUs, interrupts between vCPUs, and who causes
//! it. Reads only, but for [`halt_poll`], which changes KVM's halt polling under leases.
//!
//! [`discover`](discover::discover) finds the VMs; [`HostTracer`] attributes the time of their vCPUs by BPF programs
//! (`src/bpf`, GPL-2.0-only); [`Report`] has the difference of two readings, with the causes in order. [`attribution`] is
//! the state machine behind it, without I/O.

pub mod attribution;
pub mod cause;
pub mod discover;
mod error;
pub mod halt_poll;
mod plain;
mod reading;
mod reason;
mod report;
pub mod screen;
mod setup;
pub mod text;
mod tracer;

pub use error::HostError;
pub use reading::{Interrupts, Lost, Pcpu, Reading, Steal, VcpuCounters};
pub use reason::{Group, Isa, Reason};
pub use report::{Halts, Latencies, Report, StealBy, VcpuRecord, VmRecord};
pub use setup::HostSetup;
pub use tracer::{Cost, HostTracer, Options};

gleaner_trace::skeleton!(skeleton, "host.skel.rs");
#[cfg(test)]
gleaner_trace::skeleton!(replay_skeleton, "replay.skel.rs");
