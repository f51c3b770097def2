//! Run-queue overload: more threads are runnable than the active vCPUs can take, whichever sensor reports it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Threads queueing on the active vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Overload {
    /// Number of runnable threads.
    pub runnable: u32,
    /// How many of them were waiting, on average over the sampling time.
    pub waiting: f64,
    /// Which sensor reported it.
    pub source: OverloadSource,
}

/// The sensor that reports an overload; decisions do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverloadSource {
    /// A BPF program, which samples the active vCPUs' run queues every half millisecond.
    RunQueues,
    /// The engine, which samples the number of runnable threads and the workload's run delay every few
    /// milliseconds.
    Counts,
}

impl fmt::Display for OverloadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RunQueues => "reported by the kernel's run queues",
            Self::Counts => "found by counting runnable threads",
        })
    }
}

/// The initial persistence of an overload that the kernel reports: a fifth of a slice.
const INITIAL_PERSISTENCE: Duration = Duration::from_micros(600);
/// The longest persistence: about what counting every few milliseconds needs to be sure.
const MAX_PERSISTENCE: Duration = Duration::from_millis(12);
/// An overload that ended within this time was a burst.
const LONGEST_BURST: Duration = Duration::from_millis(100);

/// How long an overload must last before the set is expanded. It grows with each burst that expanded the set,
/// since a burst that ends before the vCPUs are back costs more than it gains. The first overload that lasts
/// resets it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Persistence(Duration);

impl Persistence {
    pub(crate) fn new() -> Self {
        Self(INITIAL_PERSISTENCE)
    }

    pub(crate) fn time(self) -> Duration {
        self.0
    }

    /// The smaller set is in force again, `after` it was expanded.
    pub(crate) fn resumed(&mut self, after: Duration) {
        self.0 = if after < LONGEST_BURST { (self.0 * 4).min(MAX_PERSISTENCE) } else { INITIAL_PERSISTENCE };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_overloads_must_last_longer_until_one_lasts() {
        let mut persistence = Persistence::new();
        let short = persistence.time();
        for factor in [4, 16] {
            persistence.resumed(Duration::from_millis(30));
            assert_eq!(persistence.time(), (short * factor).min(MAX_PERSISTENCE));
        }
        persistence.resumed(Duration::from_millis(30));
        assert_eq!(persistence.time(), MAX_PERSISTENCE);
        persistence.resumed(Duration::from_millis(300));
        assert_eq!(persistence.time(), short);
    }
}
