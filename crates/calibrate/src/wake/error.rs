use std::io;
use std::time::Duration;

use gleaner_policy::{CpuId, Method};

/// Why wake-ups could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// The thread is not allowed to run on the vCPU: it is offline, or outside the caller's cpuset.
    #[error("sched_setaffinity: cannot run a thread on vCPU {cpu}: {source}")]
    Affinity {
        /// The requested vCPU.
        cpu: CpuId,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// The spinners of [`Case::Awake`](super::Case::Awake) could not get the lowest priority.
    #[error("sched_setscheduler: cannot make the spinner on vCPU {cpu} SCHED_IDLE: {source}")]
    Priority {
        /// The vCPU of the spinner.
        cpu: CpuId,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// The vCPUs that this process is allowed to use could not be determined.
    #[error("sched_getaffinity: cannot read the vCPUs of this process: {0}")]
    Allowed(io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread for vCPU {cpu}: {source}")]
    Spawn {
        /// The vCPU that the thread was for.
        cpu: CpuId,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// A thread got no CPU time: something of higher priority occupies the vCPU.
    #[error(
        "the threads on vCPUs {waker} and {wakee} did not run for {waited:?}; is a real-time task there?"
    )]
    Starved {
        /// vCPU of the waker.
        waker: CpuId,
        /// vCPU of the wakee.
        wakee: CpuId,
        /// The timeout, after the budget.
        waited: Duration,
    },
    /// No sleeping thread was woken within the budget.
    #[error("no wake-up between vCPUs {waker} and {wakee} within {budget:?}; allow more time")]
    NoWake {
        /// vCPU of the waker.
        waker: CpuId,
        /// vCPU of the wakee.
        wakee: CpuId,
        /// The plan's budget.
        budget: Duration,
        /// Hand-offs to a thread that was not asleep yet.
        misses: u64,
    },
    /// The caller could not switch the retention method.
    #[error("cannot switch the retention method to {method}: {source}")]
    Switch {
        /// The requested method.
        method: Method,
        /// The caller's error.
        r#source: Box<dyn std::error::Error + Send + Sync>,
    },
}
