//! Programs beside the measured one, like the papers' second virtual machine.

use std::path::PathBuf;
use std::time::Duration;

use gleaner_proto::result::Metric;

use super::{ExperimentError, output};
use crate::servers::log::read;
use crate::servers::running::Running;
use crate::workload::Workload;

/// A program that runs beside a sample.
pub(super) struct CoRunner {
    pub(super) running: Running,
    /// Command line for the result.
    pub(super) line: String,
    /// Path of its output.
    pub(super) log: PathBuf,
    /// The workload, if it is one: only workloads report what they did.
    pub(super) workload: Option<Workload>,
}

/// The co-runners of one sample.
pub(super) struct CoRunners(pub(super) Vec<CoRunner>);

impl CoRunners {
    /// Stops them. Returns their total units of work per second; `None` without co-runners, if they are
    /// different programs (whose units cannot be added) or not built-in workloads, or if one was stopped
    /// before it started.
    ///
    /// # Errors
    /// If one ended by itself, and so did not run beside the command all the time, or does not stop cleanly.
    pub(super) fn stop(self) -> Result<Option<f64>, ExperimentError> {
        let all_alike = self.0.windows(2).all(|pair| pair[0].line == pair[1].line);
        let (count, mut work) = (self.0.len(), Vec::with_capacity(self.0.len()));
        for mut co_runner in self.0 {
            if let Some(status) = co_runner.running.wait(Duration::ZERO)? {
                let (line, status) = (co_runner.line, status.to_string());
                return Err(ExperimentError::CoRunnerEnded { line, status });
            }
            co_runner.running.stop()?;
            if co_runner.workload.is_some() {
                let said = output::outcome(&read(&co_runner.log)?).ok();
                work.extend(said.and_then(|mut said| said.remove(&Metric::Throughput)));
            }
        }
        Ok((all_alike && count > 0 && work.len() == count).then(|| work.iter().sum()))
    }
}
