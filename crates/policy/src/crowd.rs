//! More threads want to run than the active vCPUs can take: the signal for that, whoever tells it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Threads that queue up on the active vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Crowd {
    /// Threads that want to run.
    pub runnable: u32,
    /// How many of them had to wait, on average over the time in which they were looked at.
    pub waiting: f64,
    /// Who told it.
    pub source: CrowdSource,
}

/// Who tells that there is a crowd. What is decided on it does not depend on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrowdSource {
    /// A program in the kernel, which looks at the active vCPUs' run queues every half a millisecond.
    RunQueues,
    /// The engine, which looks at the number of runnable threads now and then, and at the workload's run delay.
    Looks,
}

impl fmt::Display for CrowdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RunQueues => "told by the kernel's run queues",
            Self::Looks => "found by counting runnable threads",
        })
    }
}

/// The shortest crowd that counts, where it is told at once; a fifth of a slice.
const LEAST_PATIENCE: Duration = Duration::from_micros(600);
/// And the longest that need not: about what looking every few milliseconds would take to be sure.
const MOST_PATIENCE: Duration = Duration::from_millis(12);
/// A crowd that was gone after this long was a passing one.
const PASSING: Duration = Duration::from_millis(100);

/// How long a crowd must last to count. It grows with each passing one that was taken for a load: a burst that is over
/// before the vCPUs are back costs more than it gains. The first one that stays ends that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience(Duration);

impl Patience {
    pub(crate) fn new() -> Self {
        Self(LEAST_PATIENCE)
    }

    pub(crate) fn time(self) -> Duration {
        self.0
    }

    /// The set is folded again, `after` it was unfolded.
    pub(crate) fn folded(&mut self, after: Duration) {
        self.0 = if after < PASSING { (self.0 * 4).min(MOST_PATIENCE) } else { LEAST_PATIENCE };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_crowds_make_patient_and_a_lasting_one_ends_that() {
        let mut patience = Patience::new();
        let short = patience.time();
        for factor in [4, 16] {
            patience.folded(Duration::from_millis(30));
            assert_eq!(patience.time(), (short * factor).min(MOST_PATIENCE));
        }
        patience.folded(Duration::from_millis(30));
        assert_eq!(patience.time(), MOST_PATIENCE);
        patience.folded(Duration::from_millis(300));
        assert_eq!(patience.time(), short);
    }
}
