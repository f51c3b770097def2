use std::io;

use gleaner_calibrate::wake::WakeError;

/// Why a workload has no result.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// An unknown parameter, or an invalid value.
    #[error(transparent)]
    Parameter(#[from] super::ParameterError),
    /// A thread could not be started.
    #[error("workload {workload}: cannot start thread {index}: {source}")]
    Spawn {
        /// Name of the workload.
        workload: &'static str,
        /// Index of the thread, from 0.
        index: usize,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// A system call failed.
    #[error("workload {workload}: {operation}: {source}")]
    Io {
        /// Name of the workload.
        workload: &'static str,
        /// The failed operation.
        operation: &'static str,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// The wake-ups of `wake` could not be measured.
    #[error("workload wake: {0}")]
    Wake(WakeError),
    /// The self-check found a wrong result: a fault of the machine or the workload.
    #[error("workload {workload}: wrong {what}: expected {expected}, found {found}")]
    Wrong {
        /// Name of the workload.
        workload: &'static str,
        /// The wrong result.
        what: &'static str,
        /// The expected value.
        expected: String,
        /// The actual value.
        found: String,
    },
    /// A thread of the workload panicked.
    #[error("workload {workload}: thread {index} panicked")]
    Panicked {
        /// Name of the workload.
        workload: &'static str,
        /// Index of the thread, from 0.
        index: usize,
    },
}

impl From<WakeError> for WorkloadError {
    fn from(error: WakeError) -> Self {
        Self::Wake(error)
    }
}
