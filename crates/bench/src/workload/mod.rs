//! The built-in workloads: small programs whose threads wait for each other in the ways that real ones do.
//!
//! Each does real work, checks its own results while it runs, and needs nothing but threads. Their throughput,
//! [`Outcome::throughput`], is what the runner compares.

mod barrier;
mod compute;
mod convoy;
mod pipeline;
mod request_response;
mod work;

use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A built-in workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Clients and servers over UNIX stream sockets. `threads`: pairs of a client and a server, by default 1.
    RequestResponse,
    /// Stages joined by bounded queues. `threads`: stages, at least 2, by default 3.
    Pipeline,
    /// Threads that compute and meet at a blocking barrier. `threads`: at least 2, by default one per vCPU.
    Barrier,
    /// A lock convoy on one mutex. `threads`: by default 2.
    Convoy,
    /// Plain computation without synchronisation. `threads`: by default one per vCPU.
    Compute,
}

/// What one run of a workload achieved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// How many operations were done; what one is depends on the workload, see [`Workload::about`].
    pub operations: u64,
    /// From the start of the first thread to the end of the last one; a little more than was asked for.
    pub elapsed: Duration,
    /// How many results were compared with what they must be. All of them were right.
    pub checks: u64,
}

impl Outcome {
    /// Operations per second; 0 if no time has passed.
    pub fn throughput(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.operations as f64 / seconds } else { 0.0 }
    }
}

/// Why a workload came to no result.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No more threads.
    #[error("workload {workload}: cannot start thread {index}: {source}")]
    Spawn {
        /// The workload's name.
        workload: &'static str,
        /// Which of its threads, from 0.
        index: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A socket failed.
    #[error("workload {workload}: {operation}: {source}")]
    Io {
        /// The workload's name.
        workload: &'static str,
        /// What was being done.
        operation: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
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

impl Workload {
    /// Every workload.
    pub const ALL: [Self; 5] =
        [Self::RequestResponse, Self::Pipeline, Self::Barrier, Self::Convoy, Self::Compute];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestResponse => request_response::NAME,
            Self::Pipeline => pipeline::NAME,
            Self::Barrier => barrier::NAME,
            Self::Convoy => convoy::NAME,
            Self::Compute => compute::NAME,
        }
    }

    /// What it does, how its threads wait for each other, and what one operation is.
    pub const fn about(self) -> &'static str {
        match self {
            Self::RequestResponse => {
                "clients ask servers for 16 table entries over a UNIX stream socket and block for each reply; \
                 one operation is one request"
            }
            Self::Pipeline => {
                "items pass stages of 5 us each through short queues with a mutex and condition variables; \
                 one operation is one item"
            }
            Self::Barrier => {
                "threads compute for 50 us and meet at a blocking barrier; one operation is one phase"
            }
            Self::Convoy => {
                "threads take one pthread mutex, yield inside and lock again at once, as sysbench threads do; \
                 one operation is one critical section"
            }
            Self::Compute => {
                "every thread counts the primes below 100000 on its own; one operation is one sieve"
            }
        }
    }

    /// Runs the workload for `duration` and checks its results. What `threads` counts, and its default, is
    /// told at each variant; too small a number is raised to the least that works.
    ///
    /// # Errors
    /// A thread or socket that cannot be had, or a wrong result.
    pub fn run(self, duration: Duration, threads: Option<usize>) -> Result<Outcome, WorkloadError> {
        let threads = threads.unwrap_or_else(|| self.default_threads()).max(self.min_threads());
        match self {
            Self::RequestResponse => request_response::run(duration, threads),
            Self::Pipeline => pipeline::run(duration, threads),
            Self::Barrier => barrier::run(duration, threads),
            Self::Convoy => convoy::run(duration, threads),
            Self::Compute => compute::run(duration, threads),
        }
    }

    fn default_threads(self) -> usize {
        match self {
            Self::RequestResponse => 1,
            Self::Pipeline => 3,
            Self::Convoy => 2,
            // The vCPUs that this process may use.
            Self::Barrier | Self::Compute => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    const fn min_threads(self) -> usize {
        match self {
            Self::Pipeline | Self::Barrier => 2,
            Self::RequestResponse | Self::Convoy | Self::Compute => 1,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|w| w.name() == name).ok_or_else(|| {
            format!("`{name}` is not a workload; use one of {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}
