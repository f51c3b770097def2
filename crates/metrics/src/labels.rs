//! The labels, and the words that can stand in them.

use gleaner_policy::{Event, Setting, Verdict, WaitingSource};
use prometheus_client::encoding::EncodeLabelSet;

use crate::workloads::Label;

/// What a step-back gives to somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lever {
    /// Retention of the whole machine.
    Retention,
    /// The vCPUs that a workload uses.
    ActiveSet,
}

impl Lever {
    pub(crate) const ALL: [Self; 2] = [Self::Retention, Self::ActiveSet];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Retention => RETENTION,
            Self::ActiveSet => ACTIVE_SET,
        }
    }
}

/// Why nothing is retained, whatever it would gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// An administrator asked for it.
    Administrator,
    /// The configuration's quiet hours.
    QuietHours,
    /// The instance is short of CPU credits.
    CreditsLow,
    /// Somebody else sets what retention is made with.
    LeverTaken,
    /// What retention is made with could not be set.
    LeverFailed,
}

impl Pause {
    pub(crate) const ALL: [Self; 5] =
        [Self::Administrator, Self::QuietHours, Self::CreditsLow, Self::LeverTaken, Self::LeverFailed];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Administrator => "administrator",
            Self::QuietHours => "quiet-hours",
            Self::CreditsLow => "credits-low",
            Self::LeverTaken => "lever-taken",
            Self::LeverFailed => "lever-failed",
        }
    }
}

const RETENTION: &str = "retention";
const ACTIVE_SET: &str = "active-set";

/// What a trial can be of.
pub(crate) const KINDS: [&str; 2] = [RETENTION, ACTIVE_SET];
pub(crate) const SOURCES: [&str; 2] = ["traced", "estimated"];
pub(crate) const VERDICTS: [&str; 3] = ["proven", "refuted", "undecided"];
pub(crate) const INTERRUPTS: [&str; 2] = ["reschedule", "function-call"];
pub(crate) const RELOADS: [&str; 2] = ["success", "failure"];

macro_rules! events {
    ($($event:ident $name:literal)*) => {
        pub(crate) const EVENTS: &[&str] = &[$($name),*];

        /// The name of a decision, in the journal and in all that is made of it.
        pub fn event_name(event: &Event) -> &'static str {
            match event {
                $(Event::$event { .. } => $name,)*
            }
        }
    };
}

events! {
    TrialStarted "trial-started"
    TrialEnded "trial-ended"
    Consolidated "consolidated"
    RolledBack "rolled-back"
    Resumed "resumed"
    LimitChanged "limit-changed"
    Released "released"
    MajorChange "major-change"
    Expanded "expanded"
    AllowedChanged "allowed-changed"
    Shared "shared"
    Confirmed "confirmed"
    Objected "objected"
    TrialAbandoned "trial-abandoned"
    MadeRoom "made-room"
    WouldTry "would-try"
}

/// A trial of fewer vCPUs can have any retention; one of retention has the same vCPUs with and without.
pub(crate) fn kind(baseline: &Setting, candidate: &Setting) -> &'static str {
    if baseline.active == candidate.active { RETENTION } else { ACTIVE_SET }
}

/// The name of a verdict, as in the journal.
pub fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Proven(_) => VERDICTS[0],
        Verdict::Refuted(_) => VERDICTS[1],
        Verdict::Undecided(_) => VERDICTS[2],
    }
}

pub(crate) fn source(source: WaitingSource) -> &'static str {
    match source {
        WaitingSource::Traced => SOURCES[0],
        WaitingSource::Estimated => SOURCES[1],
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfWorkload {
    pub(crate) workload: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfLatency {
    pub(crate) workload: Label,
    pub(crate) source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfEvent {
    pub(crate) workload: Label,
    pub(crate) event: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfTrial {
    pub(crate) workload: Label,
    pub(crate) kind: &'static str,
    pub(crate) verdict: &'static str,
}

/// One label, whose name is that of the field.
macro_rules! one_label {
    ($($name:ident: $field:ident)*) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub(crate) struct $name {
            pub(crate) $field: &'static str,
        }
    )*};
}

one_label! { OfMethod: method OfLever: lever OfReason: reason OfKind: kind OfResult: result }

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfBuild {
    pub(crate) version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_have_the_names_that_they_have_in_the_journal() {
        let error = serde_json::from_str::<Event>(r#"{"event": "?"}"#).unwrap_err().to_string();
        let journal: Vec<_> = error.split('`').skip(3).step_by(2).collect();
        assert_eq!(journal, EVENTS, "{error}");
    }
}
