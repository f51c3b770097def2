use std::io;
use std::time::Duration;

use gleaner_policy::{CpuId, Method};

/// Why wake-ups could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// The thread may not run there: the vCPU is offline, or outside the caller's cpuset.
    #[error("sched_setaffinity: cannot run a thread on vCPU {cpu}: {source}")]
    Affinity {
        /// The vCPU asked for.
        cpu: CpuId,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// The spinners of [`Case::Awake`](super::Case::Awake) could not be given the lowest priority.
    #[error("sched_setscheduler: cannot make the spinner on vCPU {cpu} SCHED_IDLE: {source}")]
    Priority {
        /// The spinner's vCPU.
        cpu: CpuId,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// The vCPUs that this process may use could not be read.
    #[error("sched_getaffinity: cannot read the vCPUs of this process: {0}")]
    Allowed(io::Error),
    /// No more threads.
    #[error("cannot start a thread for vCPU {cpu}: {source}")]
    Spawn {
        /// The vCPU that the thread was for.
        cpu: CpuId,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// A thread got no CPU time; something of higher priority holds the vCPU.
    #[error(
        "the threads on vCPUs {waker} and {wakee} did not run for {waited:?}; is a real-time task there?"
    )]
    Starved {
        /// The waker's vCPU.
        waker: CpuId,
        /// The wakee's vCPU.
        wakee: CpuId,
        /// How long they were waited for, after the budget.
        waited: Duration,
    },
    /// Not one sleeping thread was woken within the budget.
    #[error("no wake-up between vCPUs {waker} and {wakee} within {budget:?}; allow more time")]
    NoWake {
        /// The waker's vCPU.
        waker: CpuId,
        /// The wakee's vCPU.
        wakee: CpuId,
        /// The plan's budget.
        budget: Duration,
        /// Hand-offs to a thread that was not asleep yet.
        misses: u64,
    },
    /// The caller could not switch the retention method.
    #[error("cannot switch the retention method to {method}: {source}")]
    Switch {
        /// The method asked for.
        method: Method,
        /// The caller's reason.
        r#source: Box<dyn std::error::Error + Send + Sync>,
    },
}
