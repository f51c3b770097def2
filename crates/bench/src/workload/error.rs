use std::io;

use crate::wake::WakeError;

/// Why a workload came to no result.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A parameter that the workload does not have, or a value that it cannot have.
    #[error(transparent)]
    Parameter(#[from] super::ParameterError),
    /// No more threads.
    #[error("workload {workload}: cannot start thread {index}: {source}")]
    Spawn {
        /// The workload's name.
        workload: &'static str,
        /// Which of its threads, from 0.
        index: usize,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// A system call failed.
    #[error("workload {workload}: {operation}: {source}")]
    Io {
        /// The workload's name.
        workload: &'static str,
        /// What was being done.
        operation: &'static str,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// The wake-ups of `wake` could not be measured.
    #[error("workload wake: {0}")]
    Wake(WakeError),
    /// The self-check found a result that is not what it must be: a fault of the machine or the workload.
    #[error("workload {workload}: wrong {what}: expected {expected}, found {found}")]
    Wrong {
        /// The workload's name.
        workload: &'static str,
        /// Which result.
        what: &'static str,
        /// What it must be.
        expected: String,
        /// What it was.
        found: String,
    },
    /// A thread of the workload panicked.
    #[error("workload {workload}: thread {index} panicked")]
    Panicked {
        /// The workload's name.
        workload: &'static str,
        /// Which of its threads, from 0.
        index: usize,
    },
}

impl From<WakeError> for WorkloadError {
    fn from(error: WakeError) -> Self {
        Self::Wake(error)
    }
}
