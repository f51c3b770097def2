//! The report's data, as in its JSON form.

use gleaner_proto::diagnosis::Timeline;
use gleaner_trace::Snapshot;
use serde::Serialize;

use super::cause::Kind;
use super::evidence::Costs;
use super::exits::Recorded;

/// Version of the JSON format.
pub(super) const VERSION: u32 = 1;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) version: u32,
    /// What was observed.
    pub(super) target: String,
    /// Set if the target no longer exists, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vanished: Option<String>,
    /// The cause that matters most; `None` if none costs 3 % of a vCPU.
    pub(super) verdict: Option<Kind>,
    /// Every cause worth listing, costliest first.
    pub(super) causes: Vec<Cause>,
    /// What the estimates are based on.
    pub(super) costs: Costs,
    /// What the host recorded of this machine's exits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recorded: Option<Recorded>,
    /// Steal, in vCPUs.
    pub(super) stolen: f64,
    /// Where the vCPUs' time went.
    pub(super) timeline: Timeline,
    /// All counters.
    pub(super) counted: Snapshot,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Cause {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    /// The paper and section.
    pub(super) source: &'static str,
    /// Occurrences per second.
    pub(super) per_second: f64,
    /// Estimated time lost, in microseconds per second.
    pub(super) lost_us_per_second: f64,
    /// How the loss was estimated.
    pub(super) estimate: String,
    /// The threads and wake-ups that cause it, the most important first.
    pub(super) behind: Vec<String>,
    pub(super) advice: &'static [&'static str],
}
