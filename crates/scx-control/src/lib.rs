//! How `scx_gleaner` is asked and changed while it runs: its [`Server`], and the [`Client`] of `gleaner-host sched`.
//!
//! A message is one line of JSON. Envelope and the requests `stats` and `stats_meta` are those of sched-ext's `scx_stats`
//! (1.1), so that its tools can read the counts; `status` and `set` are our own. That crate is not used: it is
//! GPL-2.0-only, removes the socket of a server that lives, reads requests without a bound, and has a thread per client
//! and `syn` at run time, for what is a line in and a line out here.

mod call;
mod client;
mod rules;
mod server;
mod stats;
mod status;
mod time;
mod vectors;

pub use call::{Call, Change, Request, VmChange};
pub use client::{Client, ClientError};
pub use rules::{ReschedCo, Rules};
pub use server::{ListenError, Server};
pub use stats::{Stat, meta, values};
pub use status::{Changed, InForce, Status, VmStatus};
pub use time::{parse_ns, time_text};
pub use vectors::{VectorSet, Vectors};

/// Directory of the socket and of what a detached scheduler says. `/run/gleaner` is the daemon's.
pub const DIRECTORY: &str = "/run/gleaner-host";
/// Where `scx_gleaner` answers.
pub const SOCKET: &str = "/run/gleaner-host/scx.sock";
/// Where tools of sched-ext look for the counts of the running scheduler.
pub const SCX_SOCKET: &str = "/run/scx/root/stats";
/// Its name in `/sys/kernel/sched_ext/root/ops`, before what the kernel or a version adds.
pub const OPS: &str = "gleaner";
