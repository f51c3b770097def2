//! Where the rows of a combined report come from.

use gleaner_proto::result::Environment;
use serde::{Deserialize, Serialize};

/// The rows of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The command that repeats the run.
    pub repeat_with: String,
    /// The machine they were measured on.
    pub environment: Environment,
    /// Steal during the run, in vCPUs (1.0: one vCPU all the time).
    pub steal: f64,
    /// Their names.
    pub rows: Vec<String>,
}
