//! One small trait between the policy and whatever it controls.

use std::time::Duration;

use gleaner_policy::{CpuSet, Observation, Sense, Setting, Watch};

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The time has passed, or the watch matched: observe.
    Observe,
    /// The workload ended.
    Ended,
    /// The user asked to stop.
    Stop,
}

/// What a policy controls: this machine, a simulated one, or a recorded run.
pub trait Machine {
    /// The error of sensors and levers.
    type Error: std::error::Error;

    /// Time since the machine's driver started.
    fn now(&self) -> Duration;

    /// The vCPUs that the workload is allowed to use.
    fn allowed(&self) -> CpuSet;

    /// Takes sentences about the last wait for the user to read later, such as a sensor that is not available.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// What to measure, from the observation after the next one on; initially nothing of it. Unmeasured latencies are
    /// estimated, if possible.
    fn sense(&mut self, _what: Sense) {}

    /// Whether a caller waits for the workload through this driver: then it goes on until the workload ends,
    /// even if nothing can be controlled any more.
    fn waits_for_workload(&self) -> bool {
        true
    }

    /// Warns the user at once that nothing is controlled any more, and why; the account at the end repeats it.
    fn warn(&mut self, _sentence: &str) {}

    /// The interval since the last observation.
    ///
    /// # Errors
    /// A sensor failed.
    fn observe(&mut self) -> Result<Observation, Self::Error>;

    /// Makes the setting in force take effect on every vCPU now, see
    /// [`gleaner_policy::Decision::reset_poll_limits`].
    ///
    /// # Errors
    /// A lever failed.
    fn reset_poll_limits(&mut self) -> Result<(), Self::Error>;

    /// Puts `setting` in force. Returns sentences for the user to read later (a thread that keeps its own
    /// affinity, a missing lever).
    ///
    /// # Errors
    /// A lever failed; what is in force is then unknown until the next `apply`.
    fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, Self::Error>;
}

/// A machine that lets time pass by itself. Simulated machines do not: their time passes for all of them at
/// once.
pub trait Wait: Machine {
    /// Waits for the time `next`, or until `watch` matches, the workload ends or the user asks to stop.
    ///
    /// # Errors
    /// Waiting failed.
    fn wait(&mut self, next: Duration, watch: Option<Watch>) -> Result<Wake, Self::Error>;
}
