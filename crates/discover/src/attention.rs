//! When to take the machine's pulse, when to survey, and when to sleep until the alarm: pure.

use std::time::Duration;

use crate::Reading;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// When to take the next reading.
    pub read_at: Duration,
    /// Whether a survey is due now.
    pub survey: bool,
    /// Set the alarm to this many context switches per vCPU now; `None` leaves it as it is.
    pub arm: Option<u64>,
}

/// How closely the machine is watched.
#[derive(Debug)]
pub struct Attention {
    _wake_cost: Duration,
}

impl Attention {
    /// Starts by reading. `wake_cost` is what waking a thread on a halted vCPU costs; without an alarm the machine
    /// is read twice a second.
    pub fn new(wake_cost: Duration, has_alarm: bool) -> Self {
        let _ = has_alarm;
        Self { _wake_cost: wake_cost }
    }

    /// The alarm fired at `now`.
    pub fn alarm(&mut self, now: Duration) -> Next {
        Next { read_at: now, survey: true, arm: None }
    }

    /// A reading was taken at `now`.
    pub fn read(&mut self, now: Duration, _reading: &Reading) -> Next {
        Next { read_at: now + Duration::from_millis(500), survey: true, arm: None }
    }
}
