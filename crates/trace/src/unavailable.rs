//! Why something cannot be traced here, in words that a user can act on.

use serde::{Deserialize, Serialize};

/// Something that cannot be traced here, and why. Everything else still works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}: {why}")]
pub struct NotAvailable {
    /// What is missing, in words.
    pub what: String,
    /// Why.
    pub why: Why,
}

/// Why something cannot be traced here. The text says what to do about it, where something can be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Why {
    /// The kernel does not describe its types.
    #[error(
        "the kernel was built without CONFIG_DEBUG_INFO_BTF ({path} is missing): boot one that has it, as \
             distributions' kernels do"
    )]
    NoBtf {
        /// The file that would describe them.
        path: String,
    },
    /// The user may not load BPF programs.
    #[error("BPF programs are refused to this user: run as root, or grant CAP_BPF and CAP_PERFMON")]
    NotPermitted,
    /// Root may not either.
    #[error("the kernel refuses it to root too ({detail}): it is locked down, or built without it")]
    Forbidden {
        /// What the kernel answered.
        detail: String,
    },
    /// This kernel has no such event.
    #[error("this kernel has no {event}: it is older, or built without it")]
    NoEvent {
        /// The tracepoint or function.
        event: String,
    },
    /// The verifier did not accept the program, as may happen on kernels that nobody tried.
    #[error("the kernel does not accept the program {program} ({detail}): a newer kernel may")]
    Rejected {
        /// The program.
        program: String,
        /// The kernel's or libbpf's last words about it.
        detail: String,
    },
    /// It was there, and cost too much.
    #[error("{detail}")]
    TooExpensive {
        /// What it cost.
        detail: String,
    },
}

impl NotAvailable {
    pub(crate) fn new(what: impl Into<String>, why: Why) -> Self {
        Self { what: what.into(), why }
    }
}

impl Why {
    /// From the kernel's answer to loading or attaching `program`.
    pub(crate) fn from_load(program: &str, kind: libbpf_rs::ErrorKind, detail: String, root: bool) -> Self {
        match kind {
            libbpf_rs::ErrorKind::PermissionDenied if root && error_number(&detail) == Some(EACCES) => {
                Self::Rejected { program: program.to_owned(), detail }
            }
            libbpf_rs::ErrorKind::PermissionDenied if root => Self::Forbidden { detail },
            libbpf_rs::ErrorKind::PermissionDenied => Self::NotPermitted,
            _ => Self::Rejected { program: program.to_owned(), detail },
        }
    }
}

/// What libbpf answers when the verifier rejects a program; a missing right is `EPERM`.
const EACCES: i32 = 13;

/// The number in the text of an operating system's error, which libbpf-rs keeps nowhere else.
fn error_number(text: &str) -> Option<i32> {
    text.rsplit_once("(os error ")?.1.split(')').next()?.parse().ok()
}

/// The text of an error on one line, with all its causes.
pub(crate) fn text(error: &libbpf_rs::Error) -> String {
    format!("{error:#}").lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ErrorKind;

    use super::*;

    #[test]
    fn a_missing_right_is_not_a_rejected_program() {
        let why = |errno, root| {
            let detail = text(&libbpf_rs::Error::from_raw_os_error(errno));
            Why::from_load("on_yield", ErrorKind::PermissionDenied, detail, root)
        };
        assert!(matches!(why(1, false), Why::NotPermitted));
        assert!(matches!(why(1, true), Why::Forbidden { .. }));
        assert!(matches!(why(EACCES, true), Why::Rejected { .. }));
        assert!(why(1, true).to_string().contains("refuses it to root too"));
    }

    #[test]
    fn an_absence_says_what_and_why() {
        let absence = NotAvailable::new("timers", Why::NoEvent { event: "tracepoint tick_stop".to_owned() });
        assert_eq!(
            absence.to_string(),
            "timers: this kernel has no tracepoint tick_stop: it is older, or built without it"
        );
    }
}
