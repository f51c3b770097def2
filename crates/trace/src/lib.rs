//! What only the kernel's events show about waiting: who waits for whom, what each wake-up costs, and which cause
//! dominates.
//!
//! BPF programs (`src/bpf`, GPL-2.0-only) sum up counters and histograms in the kernel. Only the [`Recorder`] sends
//! single events to user space. [`Tracer`] loads and attaches what this kernel supports, and [`Tracer::snapshot`] reads
//! the sums. The cost of tracing is measured and kept within a [`Budget`]. Everything is optional: if something is not
//! available, a typed [`NotAvailable`] says why.

mod attach;
mod budget;
mod budget_thread;
mod histogram;
pub mod lazy;
mod load;
mod meter;
mod overload;
mod part;
mod plain;
mod read;
mod received;
mod record;
mod scope;
mod snapshot;
mod sockets;
mod spin;
mod switches;
mod times;
mod tracer;
mod unavailable;
mod waiting;
mod wakers;
mod window;

pub use budget::{Budget, Cost};
pub use histogram::{Histogram, RunLengths};
pub use overload::{Overload, OverloadError, OverloadSensor};
pub use part::{Part, Parts};
pub use record::{Batch, RecordedEvent, RecordedKind, RecordedTask, Recorder};
pub use scope::{Scope, ScopeError};
pub use snapshot::{Edge, Events, Futexes, Lost, Snapshot, ThreadStats, Vcpu, Waits, Wakes};
pub use sockets::{Directions, SocketSensor, SocketTraffic};
pub use switches::SwitchAlarm;
pub use times::VcpuTime;
pub use tracer::{TraceError, Tracer};
pub use unavailable::{NotAvailable, Reason};
pub use waiting::{Latencies, LatencySensor};
pub use wakers::{WakerSensor, Wakeups};

/// What other crates with BPF programs need to load, read and account them.
pub mod bpf {
    pub use crate::attach::{RunTime, enable_statistics, run_time};
    pub use crate::load::object_place;
    pub use crate::plain::{Plain, Summable, as_bytes, from_bytes};
    pub use crate::read::{per_vcpu, sum};
    pub use crate::unavailable::{refusal, text};
}

/// Includes a skeleton generated from `src/bpf/*.bpf.c`.
#[macro_export]
macro_rules! skeleton {
    ($module:ident, $file:literal) => {
        #[allow(
            warnings,
            clippy::all,
            clippy::pedantic,
            clippy::expect_used,
            clippy::undocumented_unsafe_blocks,
            clippy::unwrap_used,
            reason = "generated"
        )]
        mod $module {
            include!(concat!(env!("OUT_DIR"), "/", $file));
        }
    };
}

skeleton!(skeleton, "trace.skel.rs");
skeleton!(record_skeleton, "record.skel.rs");
skeleton!(overload_skeleton, "overload.skel.rs");
skeleton!(waiting_skeleton, "waiting.skel.rs");
skeleton!(sockets_skeleton, "sockets.skel.rs");
skeleton!(switches_skeleton, "switches.skel.rs");
skeleton!(wakers_skeleton, "wakers.skel.rs");
