//! Why a trial is run, and how it ends.

use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;

/// Why a trial is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The candidate is new.
    Adopt,
    /// The candidate is in force and due to be proven again.
    Reprove,
}

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The candidate is better.
    Proven(Evidence),
    /// The candidate is not better by the margin.
    Refuted(Evidence),
    /// The blocks could not decide; holds the best evidence, if any.
    Undecided(Option<Evidence>),
}

impl Verdict {
    /// The evidence behind the verdict.
    pub fn evidence(&self) -> Option<Evidence> {
        match *self {
            Self::Proven(e) | Self::Refuted(e) => Some(e),
            Self::Undecided(e) => e,
        }
    }

    /// The evidence that proved the candidate; `None` if it was not proven.
    pub(crate) fn proof(&self) -> Option<Evidence> {
        match *self {
            Self::Proven(e) => Some(e),
            Self::Refuted(_) | Self::Undecided(_) => None,
        }
    }
}
