//! The record of a span of time on a KVM host, as `gleaner-host diagnose --json` prints it, and how it is made of two
//! readings of counters. Without BPF, so that programs in guests can read what a host recorded.
//!
//! [`Report`] is the record, [`Report::read`] reads one. [`discover`](discover::discover) finds the VMs, [`attribution`] is
//! the state machine that the counters come from, [`cause`] ranks what costs a VM time.

pub mod attribution;
pub mod cause;
pub mod discover;
pub mod error;
mod file;
mod limits;
pub mod reading;
pub mod reason;
pub mod report;
pub mod setup;
pub mod timeline;

pub use error::HostError;
pub use file::{RecordError, is_record};
pub use reading::{Cost, Interrupts, Lost, Pcpu, Reading, Steal, VcpuCounters};
pub use reason::{Group, Isa, Reason};
pub use report::{FORMAT, Halts, Latencies, Report, StealBy, VcpuRecord, VmRecord};
pub use setup::HostSetup;
pub use timeline::{Interval, PcpuSample, intervals};
