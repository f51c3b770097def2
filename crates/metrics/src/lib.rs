//! The daemon's metrics: what is counted ([`Metrics`]), and the HTTP server from which a Prometheus fetches it
//! ([`Exporter`]), which `gleaner-host` uses, too. docs/metrics.md explains them to their readers.

mod coverage;
mod exporter;
mod exposition;
mod http;
mod labels;
mod latency;
mod metrics;
mod workloads;

pub use exporter::{Exporter, ExporterError};
pub use labels::{Lever, Pause, event_name, verdict_name};
pub use metrics::{Definition, Metrics};
