//! What a KVM host spends on its guests: VM exits by reason, waiting for pCPUs, interrupts between vCPUs, and who causes
//! it. Reads only, but for [`halt_poll`], which changes KVM's halt polling under leases.
//!
//! [`discover`](discover::discover) finds the VMs; [`HostTracer`] attributes the time of their vCPUs by BPF programs
//! (`src/bpf`, GPL-2.0-only); [`Report`] has the difference of two readings, with the causes in order. [`attribution`] is
//! the state machine behind it, without I/O. What needs no BPF is `gleaner_host_record`.

mod counters;
pub mod halt_poll;
pub mod metrics;
mod plain;
#[cfg(test)]
mod replay;
pub mod sched;
pub mod screen;
pub mod text;
mod thinning;
pub mod timeline;
mod tracer;

pub use gleaner_host_record::{
    Cost, Group, Halts, HostError, HostSetup, Interrupts, Interval, Isa, Latencies, Lost, Pcpu, PcpuSample,
    Reading, Reason, RecordError, Report, Steal, StealBy, VcpuCounters, VcpuRecord, VmRecord, attribution,
    cause, discover, intervals,
};
use gleaner_host_record::{error, reading, report};
pub use tracer::{HostTracer, Options};

gleaner_trace::skeleton!(skeleton, "host.skel.rs");
#[cfg(test)]
gleaner_trace::skeleton!(replay_skeleton, "replay.skel.rs");
