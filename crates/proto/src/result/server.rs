//! Rows of the benchmark of servers.

use serde::{Deserialize, Serialize};

/// How a server with its load was measured, and what is required of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ServerRow {
    /// The processes that the mode is applied to.
    pub placement: Placement,
    /// How the row is judged.
    pub class: Class,
    /// Warm-up before each window, in seconds.
    pub warmup_s: f64,
    /// Length of the window, in seconds.
    pub window_s: f64,
    /// The required ratio of Gleaner to the default mode, in addition to the general requirements.
    pub target: Option<f64>,
}

/// How a row is judged, and for how long it is measured by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// By its rate: more is better.
    Rate,
    /// By its rate, too, for kinds of programs that were not used to develop Gleaner. Measured after 2 s;
    /// every single round must be good enough.
    Unseen,
    /// An open loop, by its latency: less is better. The client determines the rate.
    Latency,
}

/// Which processes the mode is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Server and client, in one `gleaner run`.
    Inside,
    /// Only the server; the client outside is untouched.
    ServerOnly,
}
