//! Why the daemon refuses a call: the interface's errors and those of Varlink itself, as they are on the wire.

use serde::{Deserialize, Serialize};

/// An error reply. The message is for people, with the remedy where there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "error", content = "parameters")]
pub enum Error {
    /// There is no such workload, program, process or group.
    #[error("there is no {what} `{name}`{}", nearest.as_ref().map_or_else(String::new, |n| format!("; did you mean `{n}`?")))]
    #[serde(rename = "io.gleaner.Control.NotFound")]
    NotFound {
        /// `workload`, `program`, `process` or `control group`.
        what: String,
        /// The name asked for.
        name: String,
        /// The name that is most like it.
        #[serde(default)]
        nearest: Option<String>,
    },
    /// The caller lacks the right.
    #[error("{reason}")]
    #[serde(rename = "io.gleaner.Control.PermissionDenied")]
    PermissionDenied {
        /// A sentence with the remedy.
        reason: String,
    },
    /// The process or group is part of a workload that is attached to already.
    #[error("it is controlled already, as the workload `{workload}`: `gleaner status` shows it")]
    #[serde(rename = "io.gleaner.Control.AlreadyControlled")]
    AlreadyControlled {
        /// Its name.
        workload: String,
    },
    /// This machine or this daemon cannot do it.
    #[error("{reason}")]
    #[serde(rename = "io.gleaner.Control.NotSupported")]
    NotSupported {
        /// A sentence.
        reason: String,
    },
    /// The parameters make no sense together, or here.
    #[error("{reason}")]
    #[serde(rename = "io.gleaner.Control.InvalidRequest")]
    InvalidRequest {
        /// A sentence.
        reason: String,
    },
    /// The configuration that was to be loaded is wrong.
    #[error("{reason}")]
    #[serde(rename = "io.gleaner.Control.InvalidConfiguration")]
    InvalidConfiguration {
        /// A sentence with file and line.
        reason: String,
    },
    /// No workload has been engaged yet.
    #[error("nothing is recorded yet: no workload has been engaged")]
    #[serde(rename = "io.gleaner.Control.NothingRecorded")]
    NothingRecorded {},
    /// Not now: too many clients, or too many workloads.
    #[error("{reason}")]
    #[serde(rename = "io.gleaner.Control.Busy")]
    Busy {
        /// A sentence.
        reason: String,
    },
    /// It was tried, and failed.
    #[error("{reason}")]
    #[serde(rename = "io.gleaner.Control.Failed")]
    Failed {
        /// A sentence.
        reason: String,
    },
    /// The service has no such interface.
    #[error("the daemon has no interface `{interface}`: client and daemon are of different versions")]
    #[serde(rename = "org.varlink.service.InterfaceNotFound")]
    InterfaceNotFound {
        /// Its name.
        interface: String,
    },
    /// The interface has no such method.
    #[error("the daemon has no method `{method}`: client and daemon are of different versions")]
    #[serde(rename = "org.varlink.service.MethodNotFound")]
    MethodNotFound {
        /// Its name.
        method: String,
    },
    /// The method is declared, but this connection cannot have it.
    #[error("the daemon does not implement `{method}`")]
    #[serde(rename = "org.varlink.service.MethodNotImplemented")]
    MethodNotImplemented {
        /// Its name.
        method: String,
    },
    /// A parameter is unknown, missing, or of another type.
    #[error("wrong parameter: {parameter}")]
    #[serde(rename = "org.varlink.service.InvalidParameter")]
    InvalidParameter {
        /// Its name, or a sentence that has it.
        parameter: String,
    },
    /// The method answers with several replies, and the caller did not ask for `more`.
    #[error("the method answers with several replies: ask for `more`")]
    #[serde(rename = "org.varlink.service.ExpectedMore")]
    ExpectedMore {},
}

impl Error {
    /// There is no `what` called `name`; `nearest` is most like it.
    pub fn not_found(what: &str, name: &str, nearest: Option<String>) -> Self {
        Self::NotFound { what: what.to_owned(), name: name.to_owned(), nearest }
    }

    /// It was tried, and failed for this reason.
    pub fn failed(reason: impl std::fmt::Display) -> Self {
        Self::Failed { reason: reason.to_string() }
    }
}
