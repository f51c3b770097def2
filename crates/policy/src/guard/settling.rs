//! Whether the setting of a trial's present side is in effect yet.

use std::time::Duration;

use super::{Purpose, SETTLING_TIME};
use crate::{CpuSet, Observation};

/// How long a trial waits for the new setting to take effect by itself. Then the vCPUs' poll limits are reset:
/// where some vCPUs have halted and others have not, wake-ups of the former are slow already.
const RESET_TIMEOUT: Duration = Duration::from_millis(4);
/// How often they are reset for one side.
const RESETS: u32 = 2;
/// The longest wait for a side that resets can help.
const LONGEST_RESETS: Duration = RESET_TIMEOUT.saturating_mul(RESETS + 1);
/// A reset leaves the workload half of the vCPUs for a while. One that uses more than this share of them needs the other
/// half; its vCPUs halt by themselves, later.
const MAX_LOAD_FOR_RESET: f64 = 0.75;
/// Where resets do not help (others run there, too) or are not possible, a trial of which no block has settled ends after
/// this.
pub(super) const SETTLING_TIMEOUT: Duration = Duration::from_millis(300);

/// Whether a workload of this `load` can do with half of the `active` vCPUs while their poll limits are reset.
pub(crate) fn has_room(load: f64, active: &CpuSet) -> bool {
    load <= MAX_LOAD_FOR_RESET * active.len() as f64
}

/// How long a side waits at most. A baseline that still polls here and there is too fast, so that blocks measured after less
/// can prove, but not refute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timeout {
    /// Not at all: a proof of short blocks that succeeds so costs least.
    Zero,
    /// For as long as resets of the poll limits can help.
    Resets,
    /// Not at all any more: resets did not help.
    Over,
    /// Until it has settled.
    Unlimited,
}

/// How long the present side of a trial has waited for its setting to take effect, and what was done about it.
#[derive(Debug, Clone)]
pub(super) struct Settling {
    timeout: Timeout,
    waits: bool,
    /// Time since the side changed, while it waits.
    waited: Duration,
    /// CPU time of the workload in that time.
    work: Duration,
    /// Poll limit resets since the side changed.
    resets: u32,
    /// Whether a workload without room had its poll limits reset, since nothing else ended its polling.
    forced: bool,
    /// Sides that were measured before they had settled, since the trial started or started over.
    unsettled: u32,
}

impl Settling {
    /// For a trial with blocks of this length, which starts with a wait or without one.
    pub(super) fn new(purpose: Purpose, block: Duration, waits: bool) -> Self {
        Self {
            timeout: match purpose {
                Purpose::Adopt => Timeout::Unlimited,
                Purpose::Reprove if block < LONGEST_RESETS => Timeout::Zero,
                // What waiting for a side takes is small against a block that shows nothing without.
                Purpose::Reprove => Timeout::Resets,
            },
            waits,
            waited: Duration::ZERO,
            work: Duration::ZERO,
            resets: 0,
            forced: false,
            unsettled: 0,
        }
    }

    /// Lets nothing be measured that has not settled.
    pub(super) fn without_timeout(&mut self) {
        self.timeout = Timeout::Unlimited;
    }

    /// Whether the present side is not measured yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits
    }

    /// Whether a side was measured before it had settled.
    pub(super) fn is_doubtful(&self) -> bool {
        self.unsettled > 0
    }

    /// The side changes.
    pub(super) fn start(&mut self) {
        self.waits = true;
        (self.waited, self.work, self.resets) = (Duration::ZERO, Duration::ZERO, 0);
    }

    /// The trial starts over, from now on with settled sides where resets can bring them about.
    pub(super) fn start_over(&mut self) {
        if self.timeout == Timeout::Zero {
            self.timeout = Timeout::Resets;
        }
        self.unsettled = 0;
    }

    /// Time until the next observation while this waits: ever longer.
    pub(super) fn next(&self) -> Duration {
        SETTLING_TIME.max(self.waited / 2)
    }

    /// Takes an observation while this waits. False if that has taken too long.
    pub(super) fn observe(&mut self, o: &Observation) -> bool {
        self.waited += o.period;
        self.work += o.workload.cpu_time;
        if o.settled {
            self.waits = false;
        } else if self.has_timed_out() {
            if self.timeout == Timeout::Resets {
                self.timeout = Timeout::Over;
            }
            self.waits = false;
            self.unsettled += 1;
        }
        !self.waits || self.waited <= SETTLING_TIMEOUT
    }

    fn has_timed_out(&self) -> bool {
        match self.timeout {
            Timeout::Zero | Timeout::Over => true,
            Timeout::Resets => self.resets == RESETS && self.waited > LONGEST_RESETS,
            Timeout::Unlimited => false,
        }
    }

    /// Whether the machine must reset the poll limits of the vCPUs `active` now, because this takes too long. True at most
    /// [`RESETS`] times per side. Without room for it, once per trial, when nothing else ends the polling: what cannot be
    /// compared cannot be refuted either.
    pub(super) fn wants_reset(&mut self, active: &CpuSet) -> bool {
        let is_late = self.waited > RESET_TIMEOUT * (self.resets + 1);
        if !self.waits || self.resets == RESETS || !is_late {
            return false;
        }
        let load = self.work.as_secs_f64() / self.waited.as_secs_f64();
        if !has_room(load, active) {
            if self.forced || self.waited < SETTLING_TIMEOUT / 2 {
                return false;
            }
            self.forced = true;
        }
        self.resets += 1;
        true
    }
}
