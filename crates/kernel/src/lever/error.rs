//! Why a lever could not be read or moved.

use std::io;
use std::path::{Path, PathBuf};

use super::{Target, Value};
use crate::KernelError;

/// A lever could not be read or moved. The message says what to do about it where something can be done.
#[derive(Debug, thiserror::Error)]
pub enum LeverError {
    /// The thread, CPU, file or group no longer exists; there is nothing left to change or to undo.
    #[error("{target} is gone")]
    Gone {
        /// What ended or was removed.
        target: Target,
    },
    /// The kernel refused for lack of a privilege.
    #[error("not permitted to {operation} {target}: {source}; run as root, or give the user that right")]
    Denied {
        /// What was to be read or changed.
        target: Target,
        /// `read` or `change`.
        operation: &'static str,
        /// What the kernel answered.
        r#source: io::Error,
    },
    /// The file lies on a read-only mount, as `/sys` does in most containers.
    #[error("{} is mounted read-only; run on the machine itself or in a privileged container", path.display())]
    ReadOnly {
        /// The file or directory.
        path: PathBuf,
    },
    /// The group or controller is still in use by somebody else.
    #[error("cannot remove {target}: {reason}")]
    Busy {
        /// What was to be removed.
        target: Target,
        /// Who still uses it.
        reason: String,
    },
    /// The value is of a kind that the target does not have; a mistake of the caller.
    #[error("{target} cannot be set to `{value}`")]
    Mismatch {
        /// What was to be changed.
        target: Target,
        /// The value that does not fit.
        value: Value,
    },
    /// The lever does not work on this machine.
    #[error("{lever} cannot be used: {reason}")]
    Unavailable {
        /// The lever's name.
        lever: &'static str,
        /// Why, and what to do about it.
        reason: String,
    },
    /// A system call about a thread, or an operation on a group, failed.
    #[error("cannot {operation} {target}: {source}")]
    Failed {
        /// What was to be read or changed.
        target: Target,
        /// `read` or `change`.
        operation: &'static str,
        /// What the kernel answered.
        r#source: io::Error,
    },
    /// A kernel file could not be used.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl LeverError {
    /// Sorts the kernel's answer for `target` into the cases above.
    pub(crate) fn io(target: &Target, operation: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH | libc::ENODEV) => Self::Gone { target: target.clone() },
            Some(libc::EACCES | libc::EPERM) => Self::Denied { target: target.clone(), operation, source },
            Some(libc::EROFS) => {
                Self::ReadOnly { path: target.path().map(Path::to_owned).unwrap_or_default() }
            }
            _ => Self::Failed { target: target.clone(), operation, source },
        }
    }

    /// As [`LeverError::io`] for an error that already knows its file.
    pub(crate) fn kernel(target: &Target, error: KernelError) -> Self {
        match error {
            KernelError::Read { source, .. } if special(&source) => Self::io(target, "read", source),
            KernelError::Write { source, .. } if special(&source) => Self::io(target, "change", source),
            other => Self::Kernel(other),
        }
    }

    /// Whether the target no longer exists.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Gone { .. } => true,
            Self::Kernel(error) => error.is_gone(),
            _ => false,
        }
    }

    /// Whether a privilege is missing, or the mount is read-only.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Denied { .. } | Self::ReadOnly { .. } => true,
            Self::Kernel(error) => error.is_denied() || error.is_read_only(),
            _ => false,
        }
    }
}

/// Whether [`LeverError::io`] has a case of its own for this answer.
fn special(source: &io::Error) -> bool {
    matches!(
        source.raw_os_error(),
        Some(libc::ENOENT | libc::ESRCH | libc::ENODEV | libc::EACCES | libc::EPERM | libc::EROFS)
    )
}
