//! Why something cannot be traced here, in terms that a user can act on.

use serde::{Deserialize, Serialize};

/// Something that cannot be traced here, and why. Everything else still works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}: {why}")]
pub struct NotAvailable {
    /// What is missing.
    pub what: String,
    /// The reason.
    pub why: Reason,
}

/// Why something cannot be traced here. The message has the remedy, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Reason {
    /// The kernel does not describe its types.
    #[error(
        "the kernel was built without CONFIG_DEBUG_INFO_BTF ({path} is missing): boot one that has it, as \
             distributions' kernels do"
    )]
    NoBtf {
        /// Path of the missing BTF file.
        path: String,
    },
    /// The user is not allowed to load BPF programs.
    #[error("BPF programs are refused to this user: run as root, or grant CAP_BPF and CAP_PERFMON")]
    NotPermitted,
    /// The kernel is locked down.
    #[error(
        "the kernel is locked down ({mode}), and refuses BPF programs that read it to root too: boot without \
             lockdown={mode}, which Secure Boot can bring with it"
    )]
    LockedDown {
        /// `integrity` or `confidentiality`.
        mode: String,
    },
    /// The kernel refuses although the user has the rights.
    #[error("the kernel refuses it ({detail}) although the rights are there: it might be built without it")]
    Forbidden {
        /// The kernel's error.
        detail: String,
    },
    /// The kernel has no such event.
    #[error("this kernel has no {event}: it is older, or built without it")]
    NoEvent {
        /// The tracepoint or function.
        event: String,
    },
    /// The verifier does not accept the program, as can happen on kernels that were never tested.
    #[error("the kernel does not accept the program {program} ({detail}): a newer kernel might")]
    Rejected {
        /// The program's name.
        program: String,
        /// The last messages of the kernel or libbpf about it.
        detail: String,
    },
    /// It was traced, and cost too much.
    #[error("{detail}")]
    TooExpensive {
        /// Its cost.
        detail: String,
    },
}

impl NotAvailable {
    /// `what` is missing, and `why`.
    pub fn new(what: impl Into<String>, why: Reason) -> Self {
        Self { what: what.into(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_says_what_and_why() {
        let absence =
            NotAvailable::new("timers", Reason::NoEvent { event: "tracepoint tick_stop".to_owned() });
        assert_eq!(
            absence.to_string(),
            "timers: this kernel has no tracepoint tick_stop: it is older, or built without it"
        );
    }
}
