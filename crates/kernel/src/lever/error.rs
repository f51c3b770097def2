//! Why a lever could not be read or changed.

use std::io;
use std::path::{Path, PathBuf};

use super::{Target, Value};
use crate::KernelError;

/// A lever could not be read or changed. The message includes the remedy, if there is one.
#[derive(Debug, thiserror::Error)]
pub enum LeverError {
    /// The thread, CPU, file or group no longer exists; there is nothing left to change or to undo.
    #[error("{target} is gone")]
    Gone {
        /// The missing target.
        target: Target,
    },
    /// A privilege is missing.
    #[error("not permitted to {operation} {target}: {source}; run as root, or give the user that right")]
    Denied {
        /// The target read or changed.
        target: Target,
        /// `read` or `change`.
        operation: &'static str,
        /// The kernel's error.
        r#source: io::Error,
    },
    /// The file is on a read-only mount, like `/sys` in most containers.
    #[error("{} is mounted read-only; run on the machine itself or in a privileged container", path.display())]
    ReadOnly {
        /// The file or directory.
        path: PathBuf,
    },
    /// Another program still uses the group or controller.
    #[error("cannot remove {target}: {reason}")]
    Busy {
        /// The target to remove.
        target: Target,
        /// The remaining user.
        reason: String,
    },
    /// The value has the wrong kind for the target; a bug of the caller.
    #[error("{target} cannot be set to `{value}`")]
    Mismatch {
        /// The target to change.
        target: Target,
        /// The value of the wrong kind.
        value: Value,
    },
    /// The lever does not work on this machine.
    #[error("{lever} cannot be used: {reason}")]
    Unavailable {
        /// Name of the lever.
        lever: &'static str,
        /// The cause and the remedy.
        reason: String,
    },
    /// systemd did not do what it was asked for.
    #[error("cannot {operation} {unit}: {reason}")]
    Systemd {
        /// The unit in question.
        unit: String,
        /// What was asked for.
        operation: &'static str,
        /// The cause, and the remedy if there is one.
        reason: String,
    },
    /// A system call on a thread, or an operation on a group, failed.
    #[error("cannot {operation} {target}: {source}")]
    Failed {
        /// The target read or changed.
        target: Target,
        /// `read` or `change`.
        operation: &'static str,
        /// The kernel's error.
        r#source: io::Error,
    },
    /// A kernel file could not be used.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl LeverError {
    /// Classifies an I/O error on `target`.
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

    /// Like [`LeverError::io`], for an error that already has its file.
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

/// Whether [`LeverError::io`] has a variant for this error.
fn special(source: &io::Error) -> bool {
    matches!(
        source.raw_os_error(),
        Some(libc::ENOENT | libc::ESRCH | libc::ENODEV | libc::EACCES | libc::EPERM | libc::EROFS)
    )
}
