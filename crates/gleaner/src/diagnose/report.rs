//! The report, as text and JSON tell it.

use gleaner_report::diagnosis::Timeline;
use gleaner_trace::Snapshot;
use serde::Serialize;

use super::cause::Kind;
use super::evidence::Costs;

/// The version of the JSON format.
pub(super) const VERSION: u32 = 1;

/// What `gleaner diagnose` found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// [`VERSION`].
    pub(super) version: u32,
    /// What was looked at.
    pub(super) target: String,
    /// What was to be looked at is not there any more, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vanished: Option<String>,
    /// The cause that matters most; none where none costs 3 % of a vCPU.
    pub(super) verdict: Option<Kind>,
    /// Every cause that was seen, costliest first.
    pub(super) causes: Vec<Cause>,
    /// What the estimates are made from.
    pub(super) costs: Costs,
    /// The time that the host gave to others, in vCPUs.
    pub(super) stolen: f64,
    /// Where the vCPUs' time went.
    pub(super) timeline: Timeline,
    /// Everything that was counted.
    pub(super) counted: Snapshot,
}

/// One cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Cause {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    /// Where the papers treat it.
    pub(super) source: &'static str,
    /// How often it was met, per second.
    pub(super) per_second: f64,
    /// The time that it costs, in microseconds per second. An estimate.
    pub(super) lost_us_per_second: f64,
    /// How that was estimated.
    pub(super) estimate: String,
    /// The threads and wake-ups behind it, the most important first.
    pub(super) behind: Vec<String>,
    /// What to do.
    pub(super) advice: &'static [&'static str],
}
