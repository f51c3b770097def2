//! What one cell measured.

use std::collections::BTreeMap;

use gleaner_proto::result::Metric;
use serde::{Deserialize, Serialize};

/// Measurements of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Start of the window, in milliseconds since the Unix epoch.
    pub began_unix_ms: u64,
    /// What was measured in the window. Its length is the wall time; counters are those of the whole machine,
    /// and so is the CPU time per unit of work. Open loops have latencies, from send to answer; for sysbench,
    /// from the arrival in its own queue.
    pub metrics: BTreeMap<Metric, f64>,
}

impl Sample {
    /// A metric that every sample has, or 0.
    pub fn get(&self, metric: Metric) -> f64 {
        self.metrics.get(&metric).copied().unwrap_or_default()
    }

    /// Operations per second, in the row's unit.
    pub fn rate(&self) -> f64 {
        self.get(Metric::Throughput)
    }

    /// Adds the rate, and what an operation cost.
    pub(super) fn with_rate(mut self, rate: f64) -> Self {
        let awake = self.get(Metric::CpuBusyS) + self.get(Metric::CpuPollingS);
        let operations = rate * self.get(Metric::WallS);
        self.metrics.insert(Metric::Throughput, rate);
        if operations > 0.0 {
            self.metrics.insert(Metric::CpuSPerOp, awake / operations);
        }
        self
    }
}

/// Measurements of one cell, and its commands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The measurement.
    pub sample: Sample,
    /// Command lines of server and client, as started.
    pub commands: Vec<String>,
}
