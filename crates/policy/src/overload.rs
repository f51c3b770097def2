//! Run-queue overload: more threads want to run than the active vCPUs can take, whichever sensor reports it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Threads that queue up on the active vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Overload {
    /// Threads that want to run.
    pub runnable: u32,
    /// How many of them had to wait, on average over the time in which they were sampled.
    pub waiting: f64,
    /// Which sensor reported it.
    pub source: OverloadSource,
}

/// The sensor that reports an overload. No decision depends on which one it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverloadSource {
    /// A program in the kernel, which samples the active vCPUs' run queues every half a millisecond.
    RunQueues,
    /// The engine, which samples the number of runnable threads every few milliseconds, and the workload's run delay.
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

/// The shortest overload that counts, where the kernel reports it; a fifth of a slice.
const SHORTEST: Duration = Duration::from_micros(600);
/// And the longest that need not: about what counting every few milliseconds would take to be sure.
const LONGEST: Duration = Duration::from_millis(12);
/// An overload that was over after this long was a passing one.
const PASSING: Duration = Duration::from_millis(100);

/// How long an overload must last to count. It grows with each passing one that was taken for a load: a burst that is over
/// before the vCPUs are back costs more than it gains. The first one that lasts resets it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Persistence(Duration);

impl Persistence {
    pub(crate) fn new() -> Self {
        Self(SHORTEST)
    }

    pub(crate) fn time(self) -> Duration {
        self.0
    }

    /// The smaller set is in force again, `after` it was expanded.
    pub(crate) fn resumed(&mut self, after: Duration) {
        self.0 = if after < PASSING { (self.0 * 4).min(LONGEST) } else { SHORTEST };
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
            assert_eq!(persistence.time(), (short * factor).min(LONGEST));
        }
        persistence.resumed(Duration::from_millis(30));
        assert_eq!(persistence.time(), LONGEST);
        persistence.resumed(Duration::from_millis(300));
        assert_eq!(persistence.time(), short);
    }
}
