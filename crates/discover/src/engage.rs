//! Which workloads to engage and which to release: pure, without I/O and clock.

use std::fmt;
use std::time::Duration;

use crate::Key;

/// What decides beside the readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngageConfig {
    /// What waking a thread on a halted vCPU costs here.
    pub wake_cost: Duration,
    /// The most workloads engaged at the same time.
    pub most_workloads: usize,
}

/// What is known of one workload at this time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen<'a> {
    /// The workload.
    pub key: &'a Key,
    /// Its CPU time per time, in vCPUs.
    pub load: f64,
    /// How often its threads were put on a vCPU, per second; `None` if unknown.
    pub switches_per_s: Option<f64>,
    /// Whether a setting paid for this program in an earlier run.
    pub known: bool,
    /// Whether anything but the untouched system is in force or on trial for it; only for an engaged one.
    pub in_force: bool,
}

/// Whom to engage and whom to release now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// To be engaged, those that lose most first.
    pub engage: Vec<Key>,
    /// To be released, with the reason.
    pub release: Vec<(Key, Release)>,
}

/// Why a workload is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It ended, or a rule excludes it now.
    Gone,
    /// Nothing was in force for it for so long.
    NothingToWin {
        /// How long nothing was in force.
        after: Duration,
    },
    /// It used next to no CPU time for so long.
    Idle {
        /// How long it has been idle.
        after: Duration,
    },
    /// More are engaged than the configuration allows.
    TooMany {
        /// The most that are allowed.
        most: usize,
    },
}

/// How a workload stands at this time, and why; its text is a sentence for the user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Standing {
    /// It is engaged.
    Engaged {
        /// What waking can cost it, in vCPUs.
        lost: f64,
    },
    /// It uses too little CPU time.
    Idle {
        /// CPU time per time, in vCPUs.
        load: f64,
    },
    /// Waking costs it too little.
    Cheap {
        /// What waking can cost it, in vCPUs.
        lost: f64,
    },
    /// Waking costs enough, but not for long enough yet.
    Watched {
        /// What waking can cost it, in vCPUs.
        lost: f64,
    },
    /// It was engaged in vain.
    Away {
        /// For how long it is still left alone.
        remaining: Duration,
    },
    /// As many as allowed are engaged.
    Full {
        /// The most that are allowed.
        most: usize,
    },
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("left alone")
    }
}

/// Whom the daemon has engaged.
#[derive(Debug)]
pub struct Engagement {
    _config: EngageConfig,
}

impl Engagement {
    /// Nobody is engaged.
    pub fn new(config: EngageConfig) -> Self {
        Self { _config: config }
    }

    /// From now on with this configuration.
    pub fn reconfigure(&mut self, config: EngageConfig) {
        self._config = config;
    }

    /// Decides by what was seen at `now`, a time since any fixed moment. `idle_periods_per_s` is the machine's, and
    /// `seen` must hold every workload that there is.
    pub fn step(&mut self, _now: Duration, _idle_periods_per_s: f64, _seen: &[Seen<'_>]) -> Changes {
        Changes::default()
    }

    /// How the workload stands, by the same numbers as in [`Engagement::step`].
    pub fn standing(&self, _now: Duration, _idle_periods_per_s: f64, seen: &Seen<'_>) -> Standing {
        Standing::Idle { load: seen.load }
    }

    /// Whether it is engaged.
    pub fn is_engaged(&self, _key: &Key) -> bool {
        false
    }
}
