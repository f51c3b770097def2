//! The spine: one small trait between the policy and whatever it controls.

use std::time::Duration;

use gleaner_policy::{CpuSet, Observation, Setting, Watch};

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The time is over, or the watch matched: observe.
    Observe,
    /// The workload ended.
    Ended,
    /// The user asked to stop.
    Stop,
}

/// What a policy controls: this machine, a simulated one, or a recorded run.
pub trait Machine {
    /// What can go wrong.
    type Error: std::error::Error;

    /// Time since the machine's driver started.
    fn now(&self) -> Duration;

    /// The vCPUs that the workload may use.
    fn allowed(&self) -> CpuSet;

    /// Sentences about the last wait that the user should read later: a way to notice things that is not there.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Whether wake-up latencies are to be measured, from the observation after the next one on; at first they are not.
    /// Where they are not they are estimated, if that.
    fn sense_waiting(&mut self, _wanted: bool) {}

    /// Whether somebody waits for the workload through this driver: then it goes on until the workload ends, also where
    /// nothing can be controlled any more.
    fn stands_by(&self) -> bool {
        true
    }

    /// Tells the user at once what the account at the end repeats: that nothing is controlled any more, and why.
    fn warn(&mut self, _sentence: &str) {}

    /// What happened since the last observation.
    ///
    /// # Errors
    /// A sensor failed.
    fn observe(&mut self) -> Result<Observation, Self::Error>;

    /// Makes every vCPU follow the setting in force from now on, see [`gleaner_policy::Decision::reset_poll_limits`].
    ///
    /// # Errors
    /// A lever failed.
    fn reset_poll_limits(&mut self) -> Result<(), Self::Error>;

    /// Puts `setting` in force. Sentences that the user should read later (a thread that keeps its own
    /// affinity, a lever that is not there) come back.
    ///
    /// # Errors
    /// A lever failed; what is in force is then unknown until the next `apply`.
    fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, Self::Error>;
}

/// A machine that lets time pass by itself. The time of simulated ones passes for all of them at once.
pub trait Wait: Machine {
    /// Lets time pass: until `next` from now, or earlier when `watch` matches, the workload ends or the user
    /// asks to stop.
    ///
    /// # Errors
    /// Waiting itself failed.
    fn wait(&mut self, next: Duration, watch: Option<Watch>) -> Result<Wake, Self::Error>;
}
