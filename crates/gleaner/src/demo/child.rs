//! One run of a workload in a process of its own, and what the machine spent on it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gleaner_bench::workload::{Outcome, Workload};
use gleaner_kernel::Root;
use gleaner_kernel::idle::IdleSensor;
use gleaner_kernel::stat::StatSensor;
use serde::Serialize;

/// What one run achieved, and its price.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Sample {
    /// Operations per second.
    pub(super) ops_per_s: f64,
    /// CPU seconds of the whole machine per operation: work, yield threads and polling.
    pub(super) cpu_s_per_op: f64,
}

/// The CPU time that this machine spends.
pub(super) struct Meter {
    stat: StatSensor,
    idle: IdleSensor,
}

impl Meter {
    pub(super) fn new(root: &Root) -> anyhow::Result<Self> {
        Ok(Self { stat: StatSensor::new(root)?, idle: IdleSensor::new(root)? })
    }

    /// CPU time since boot that was not spent halted: the kernel counts polling as idle, so it is added.
    fn spent(&mut self) -> anyhow::Result<Duration> {
        let stat = self.stat.read()?;
        let busy: Duration = stat.cpus.iter().map(|(_, times)| times.busy()).sum();
        let polled: Duration = self.idle.read()?.iter().map(|counters| counters.poll_time).sum();
        Ok(busy + polled)
    }
}

/// Runs `workload` for `time`: plainly, or under `gleaner run` with the journal that is named.
pub(super) fn measure(
    workload: Workload,
    time: Duration,
    journal: Option<&Path>,
    meter: &mut Meter,
) -> anyhow::Result<Sample> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(&this);
    if let Some(journal) = journal {
        command.args(["run", "--quiet", "--require", "--journal"]).arg(journal).arg("--").arg(&this);
    }
    command.args(["workload", workload.name(), "--json", "--seconds", &time.as_secs_f64().to_string()]);
    let before = meter.spent()?;
    let output = command.output().with_context(|| format!("cannot start {}", this.display()))?;
    let spent = meter.spent()?.saturating_sub(before);
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    let outcome: Outcome = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("not an outcome: {}", String::from_utf8_lossy(&output.stdout).trim()))?;
    let operations = outcome.operations as f64;
    if outcome.operations == 0 {
        bail!("not one operation was done");
    }
    Ok(Sample {
        ops_per_s: operations / outcome.elapsed.as_secs_f64(),
        cpu_s_per_op: spent.as_secs_f64() / operations,
    })
}
