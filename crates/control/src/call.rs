//! The methods' parameters and replies, and what a call is to the daemon.

use std::fmt;
use std::marker::PhantomData;

use gleaner_proto::journal::{Record, Summary};
use serde::{Deserialize, Serialize};

use crate::Status;

/// No parameters, or a reply without content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// The reply of `Status`, and each of `Watch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusReply {
    /// Everything that `gleaner status` shows.
    pub status: Status,
}

/// Which journals to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhyRequest {
    /// Only that of this workload.
    pub workload: Option<String>,
    /// Only what is not older.
    pub since_ms: Option<u64>,
}

/// One record of a workload's journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhyReply {
    /// The workload's name.
    pub workload: String,
    /// The first of each workload is its start record.
    pub record: Record,
}

/// How often to report the status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchRequest {
    pub(crate) interval_ms: Option<u64>,
}

/// What to engage, and on which terms; what is `None` is as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachRequest {
    /// A process with its descendants.
    pub pid: Option<u32>,
    /// A control group: its directory, or its path as in `/proc/PID/cgroup`.
    pub cgroup: Option<String>,
    /// The workload's name, if it is not yet taken.
    pub name: Option<String>,
    /// The name of a [`gleaner_policy::Objective`].
    pub objective: Option<String>,
    /// Whether it can be given fewer vCPUs.
    pub consolidate: Option<bool>,
    /// Whether idle vCPUs can be kept from halting for it.
    pub retain: Option<bool>,
    /// A command that prints a growing number, or `file:PATH`.
    pub progress: Option<String>,
    /// Whether earlier runs of the program count, and this one for later ones.
    pub memory: Option<bool>,
}

/// The replies of `Attach`: one when the workload is engaged, one when it has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttachReply {
    /// The workload's name.
    pub workload: String,
    /// What is not available for it, as sentences.
    pub limits: Vec<String>,
    /// The account of the run; only in the last reply.
    pub summary: Option<Summary>,
}

/// The workload to leave alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetachRequest {
    /// Its name, as in `Status`.
    pub workload: String,
}

/// Why everything is to be untouched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// Shown by `Status`.
    pub reason: Option<String>,
}

/// What to forget.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForgetRequest {
    /// A program; all if `None`.
    pub program: Option<String>,
}

/// What was forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetReply {
    /// The programs, each once.
    pub programs: Vec<String>,
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReply {
    /// The configuration files, in the order in which they count.
    pub files: Vec<String>,
}

/// All metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricsReply {
    /// In the OpenMetrics text format.
    pub text: String,
}

/// A call in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(crate) u64);

/// Where the answer to a call goes: replies of type `R`, to [`crate::Server::answer`]. A connection whose call is
/// never answered stays silent.
#[must_use = "the caller waits for an answer"]
pub struct To<R> {
    id: CallId,
    replies: PhantomData<fn(R)>,
}

impl<R> To<R> {
    pub(crate) fn new(id: CallId) -> Self {
        Self { id, replies: PhantomData }
    }

    /// The call, as in [`crate::Event::HungUp`].
    pub fn id(&self) -> CallId {
        self.id
    }
}

impl<R> fmt::Debug for To<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "To({})", self.id.0)
    }
}

/// A call that its caller is allowed to make. `Watch` arrives as one [`Call::Status`] for each of its replies;
/// introspection does not arrive.
#[derive(Debug)]
pub enum Call {
    /// What the daemon does now.
    Status(To<StatusReply>),
    /// What it did: answer with [`crate::Server::answer_records`].
    Why(WhyRequest, To<WhyReply>),
    /// Engage something: reply with [`crate::Server::push`] when it is engaged, and answer when it has ended. If its
    /// caller hangs up before, [`crate::Event::HungUp`] asks to end it.
    Attach(AttachRequest, To<AttachReply>),
    /// Undo what is in force for a workload, and leave it alone.
    Detach(DetachRequest, To<Nothing>),
    /// Undo everything, and change nothing.
    Pause(PauseRequest, To<Nothing>),
    /// Go on.
    Resume(To<Nothing>),
    /// Forget what was learned.
    Forget(ForgetRequest, To<ForgetReply>),
    /// Read the configuration again.
    Reload(To<ReloadReply>),
    /// All metrics.
    Metrics(To<MetricsReply>),
}
