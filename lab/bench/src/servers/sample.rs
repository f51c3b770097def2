//! What one cell measured.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::machine::CpuUse;

/// Measurements of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Operations per second, in the row's unit.
    pub rate: f64,
    /// Start of the window, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub began_unix_ms: u64,
    /// Actual length of the window.
    #[serde(rename = "window_s", with = "seconds")]
    pub window: Duration,
    /// CPU use of the whole machine during the window.
    pub cpu: CpuUse,
    /// Only for open loops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// Request latencies, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean, from send to answer; for sysbench, from the arrival in its own queue.
    pub mean_us: f64,
    /// 99th percentile, measured the same way.
    pub p99_us: f64,
    /// Mean from when a request was due, if known; includes the client's own delay.
    pub due_mean_us: Option<f64>,
    /// 99th percentile from when it was due.
    pub due_p99_us: Option<f64>,
    /// CPU time of the client in vCPUs, if known.
    pub client_cpu: Option<f64>,
}

/// Measurements of one cell, and its commands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The measurement.
    pub sample: Sample,
    /// Command lines of server and client, as started.
    pub commands: Vec<String>,
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}
