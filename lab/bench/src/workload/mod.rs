//! The built-in workloads: small programs whose threads wait for each other like those of real programs.
//!
//! Each does real work, checks its own results while it runs, and needs nothing but threads. The runner
//! compares their throughput, [`Outcome::throughput`]. The parameters of each are in its [`Spec`];
//! `docs/workloads.md` has a table of them.

mod amount;
mod barrier;
mod compute;
mod convoy;
mod dedup;
mod error;
mod freqsleep;
mod matmul;
mod meeting;
mod mutex;
mod parameters;
mod pipeline;
mod queue;
mod request_response;
mod spec;
mod task_queue;
mod time;
mod tlb;
mod user_spin_barrier;
mod wake;
mod work;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use amount::Amount;
pub use error::WorkloadError;
pub use parameters::{Kind, ParameterError, Parameters};
pub use spec::{Granularity, Settings, Spec, Threads, Variant};

/// A built-in workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Clients and servers over UNIX stream sockets.
    RequestResponse,
    /// Stages connected by bounded queues.
    Pipeline,
    /// Threads that compute and meet at a barrier.
    Barrier,
    /// A lock convoy on one mutex.
    Convoy,
    /// Plain computation without synchronisation.
    Compute,
    /// Two threads that wake each other up: Table 2 of the paper.
    Wake,
    /// Threads that compute and spin in user mode until all have arrived.
    UserSpinBarrier,
    /// Many small tasks in one queue.
    TaskQueue,
    /// Changes of a shared address space.
    Tlb,
    /// Matrix multiplication, the papers' busy co-runner.
    Matmul,
    /// Very short sleeps, the paper's co-runner with frequent switches.
    Freqsleep,
}

/// Result of one run of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of operations done; what one is depends on the workload, see [`Workload::about`].
    pub operations: u64,
    /// From the start of the first thread to the end of the last one; slightly more than requested.
    pub elapsed: Duration,
    /// Number of results that were checked, all of them successfully.
    pub checks: u64,
}

impl Outcome {
    /// Operations per second; 0 if no time has passed.
    pub fn throughput(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.operations as f64 / seconds } else { 0.0 }
    }
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 11] = [
        Self::RequestResponse,
        Self::Pipeline,
        Self::Barrier,
        Self::Convoy,
        Self::Compute,
        Self::Wake,
        Self::UserSpinBarrier,
        Self::TaskQueue,
        Self::Tlb,
        Self::Matmul,
        Self::Freqsleep,
    ];

    /// The five that `gleaner demo` shows, with their defaults: three kinds of waiting that retention makes
    /// faster, and two programs that should stay the same.
    pub const DEMO: [Self; 5] =
        [Self::RequestResponse, Self::Pipeline, Self::Barrier, Self::Convoy, Self::Compute];

    /// Its description and parameters.
    pub const fn spec(self) -> &'static Spec {
        match self {
            Self::RequestResponse => &request_response::SPEC,
            Self::Pipeline => &pipeline::SPEC,
            Self::Barrier => &barrier::SPEC,
            Self::Convoy => &convoy::SPEC,
            Self::Compute => &compute::SPEC,
            Self::Wake => &wake::SPEC,
            Self::UserSpinBarrier => &user_spin_barrier::SPEC,
            Self::TaskQueue => &task_queue::SPEC,
            Self::Tlb => &tlb::SPEC,
            Self::Matmul => &matmul::SPEC,
            Self::Freqsleep => &freqsleep::SPEC,
        }
    }

    /// Name on the command line, in scenarios and in reports.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// What it does, how its threads wait for each other, and what one operation is.
    pub const fn about(self) -> &'static str {
        self.spec().about
    }

    /// Completes `parameters` with this workload's defaults.
    ///
    /// # Errors
    /// If the workload does not have a given parameter or kind, or a value is out of range; the message names
    /// the workload, the parameter and the valid values.
    pub fn settings(self, parameters: &Parameters) -> Result<Settings, ParameterError> {
        self.spec().settings(parameters)
    }

    /// Runs the workload and checks its results.
    ///
    /// # Errors
    /// Invalid parameters, a thread or another resource that cannot be obtained, or a wrong result.
    pub fn run(self, amount: Amount, parameters: &Parameters) -> Result<Outcome, WorkloadError> {
        let settings = self.settings(parameters)?;
        let run = match self {
            Self::RequestResponse => request_response::run,
            Self::Pipeline => pipeline::run,
            Self::Barrier => barrier::run,
            Self::Convoy => convoy::run,
            Self::Compute => compute::run,
            Self::Wake => wake::run,
            Self::UserSpinBarrier => user_spin_barrier::run,
            Self::TaskQueue => task_queue::run,
            Self::Tlb => tlb::run,
            Self::Matmul => matmul::run,
            Self::Freqsleep => freqsleep::run,
        };
        run(amount, &settings)
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
