//! Why the kernel refuses a BPF program.

use std::fs;

pub use gleaner_proto::unavailable::{NotAvailable, Reason};

/// From the kernel's error on loading or attaching `program`.
pub(crate) fn from_load(program: &str, kind: libbpf_rs::ErrorKind, detail: String, rights: Rights) -> Reason {
    let denied = kind == libbpf_rs::ErrorKind::PermissionDenied;
    match rights {
        Rights { allowed: true, .. } if !denied || error_number(&detail) == Some(EACCES) => {
            Reason::Rejected { program: program.to_owned(), detail }
        }
        Rights { allowed: true, lockdown: Some(mode) } => Reason::LockedDown { mode },
        Rights { allowed: true, lockdown: None } => Reason::Forbidden { detail },
        Rights { allowed: false, .. } if denied => Reason::NotPermitted,
        Rights { allowed: false, .. } => Reason::Rejected { program: program.to_owned(), detail },
    }
}

/// What a process needs for BPF programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    /// Whether it has the capabilities.
    allowed: bool,
    /// The kernel's lockdown mode, if it has one.
    lockdown: Option<String>,
}

/// include/uapi/linux/capability.h
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

impl Rights {
    /// Those of this process.
    pub(crate) fn now() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::from_files(&read("/proc/self/status"), &read("/sys/kernel/security/lockdown"))
    }

    /// From `/proc/self/status` and the lockdown file, in which the current mode is in brackets.
    fn from_files(status: &str, lockdown: &str) -> Self {
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        let has = |capability: u32| effective >> capability & 1 == 1;
        let mode = lockdown.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(mode, _)| mode);
        Self {
            allowed: has(CAP_SYS_ADMIN) || has(CAP_BPF) && has(CAP_PERFMON),
            lockdown: mode.filter(|mode| *mode != "none").map(str::to_owned),
        }
    }
}

/// libbpf's error if the verifier rejects a program; a missing right is `EPERM`.
const EACCES: i32 = 13;

/// The number in an operating system error's text, the only place where libbpf-rs keeps it.
fn error_number(text: &str) -> Option<i32> {
    text.rsplit_once("(os error ")?.1.split(')').next()?.parse().ok()
}

/// Why the kernel refuses to load or attach `program`.
pub fn refusal(program: &str, error: &libbpf_rs::Error) -> Reason {
    from_load(program, error.kind(), text(error), Rights::now())
}

/// An error's text on one line, with all its causes.
pub fn text(error: &libbpf_rs::Error) -> String {
    format!("{error:#}").lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use libbpf_rs::{ErrorKind, libbpf_sys};

    use super::*;

    const EPERM: i32 = 1;

    #[test]
    fn a_missing_right_is_not_a_rejected_program() {
        let why = |errno, status: &str, lockdown: &str| {
            let detail = text(&libbpf_rs::Error::from_raw_os_error(errno));
            let rights = Rights::from_files(status, lockdown);
            from_load("on_yield", ErrorKind::PermissionDenied, detail, rights)
        };
        let (all, none) = ("Name:\tx\nCapEff:\t000001ffffffffff\n", "CapEff:\t0000000000000000\n");
        // CAP_BPF needs CAP_PERFMON beside it.
        let (half, both) = ("CapEff:\t0000008000000000\n", "CapEff:\t000000c000000000\n");
        let open = "[none] integrity confidentiality\n";
        assert_eq!(why(EPERM, none, ""), Reason::NotPermitted);
        assert_eq!(why(EPERM, half, open), Reason::NotPermitted);
        for allowed in [all, both] {
            assert!(matches!(why(EPERM, allowed, open), Reason::Forbidden { .. }));
            assert!(matches!(why(EACCES, allowed, open), Reason::Rejected { .. }));
        }
        let locked = why(EPERM, all, "none integrity [confidentiality]\n");
        assert_eq!(locked, Reason::LockedDown { mode: "confidentiality".to_owned() });
        assert!(locked.to_string().contains("boot without lockdown=confidentiality"), "{locked}");
    }

    #[test]
    fn what_the_verifier_rejects_is_named() {
        if !Rights::now().allowed {
            return gleaner_testing::skipped("needs the right to load BPF programs");
        }
        // A program that returns an uninitialised register.
        let exit = libbpf_sys::bpf_insn { code: 0x95, ..libbpf_sys::bpf_insn::default() };
        // SAFETY: the strings end in NUL, there is one instruction, and no options are passed.
        let answer = unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT,
                c"broken".as_ptr(),
                c"GPL".as_ptr(),
                &raw const exit,
                1,
                std::ptr::null_mut(),
            )
        };
        assert!(answer < 0, "the verifier accepted it");
        let error = libbpf_rs::Error::from_raw_os_error(-answer);
        let why = from_load("broken", error.kind(), text(&error), Rights::now());
        assert!(matches!(&why, Reason::Rejected { program, .. } if program == "broken"), "{why}");
    }
}
