//! What the server did not put up with, for the daemon's log.

use std::fmt;

use crate::Peer;

/// How many refusals per second are reported, after a burst of twice as many; the others are counted.
pub(super) const REPORTS_PER_S: f64 = 5.0;

/// Why a client was refused or disconnected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It lacks the right to use this method.
    #[error("has no right to use {method}")]
    Permission {
        /// The method, with its interface.
        method: String,
    },
    /// It sent something that is not a request.
    #[error("sent something that is not a request and was disconnected: {error}")]
    Garbage {
        /// What is wrong with it.
        error: String,
    },
    /// Its request is too long.
    #[error("sent a request of more than {most} bytes and was disconnected")]
    Oversize {
        /// The limit.
        most: usize,
    },
    /// Its request was not complete in time.
    #[error("sent half a request and was disconnected")]
    Incomplete,
    /// It did not read its replies in time.
    #[error("did not read its replies and was disconnected")]
    Slow,
    /// There are too many clients already.
    #[error("was refused: there are {clients} clients already")]
    Full {
        /// How many.
        clients: usize,
    },
}

/// A client that was refused or disconnected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Who.
    pub peer: Peer,
    /// Why.
    pub reason: Reason,
    /// How many refusals before this one were not reported, since there were too many.
    pub unreported: u32,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "control socket: {} {}", self.peer, self.reason)?;
        match self.unreported {
            0 => Ok(()),
            n => write!(f, " (and {n} others before)"),
        }
    }
}
