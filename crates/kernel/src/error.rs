//! The error type of kernel files: which file, which operation, why.

use std::io;
use std::path::{Path, PathBuf};

/// A kernel file could not be used. The message names the path and the operation.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Opening or reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        r#source: io::Error,
    },
    /// Opening for writing or writing failed.
    #[error("cannot write `{value}` to {}: {source}", path.display())]
    Write {
        /// The file written to.
        path: PathBuf,
        /// The value to write.
        value: String,
        /// The kernel's error.
        r#source: io::Error,
    },
    /// The file was read, but its text is not as expected.
    #[error("cannot understand {}: expected {what}, found `{text}`", path.display())]
    Parse {
        /// The file read from.
        path: PathBuf,
        /// The expected content, e.g. `a CPU list`.
        what: &'static str,
        /// The text found, shortened to [`KernelError::TEXT_LIMIT`] characters.
        text: String,
    },
}

impl KernelError {
    /// The most characters of an unexpected text in the message.
    pub const TEXT_LIMIT: usize = 80;

    /// Creates a [`KernelError::Read`].
    pub fn read(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Read { path: path.into(), source }
    }

    /// Creates a [`KernelError::Write`].
    pub fn write(path: impl Into<PathBuf>, value: impl Into<String>, source: io::Error) -> Self {
        Self::Write { path: path.into(), value: value.into(), source }
    }

    /// Creates a [`KernelError::Parse`]; `text` is shortened to [`KernelError::TEXT_LIMIT`] characters.
    pub fn parse(path: impl Into<PathBuf>, what: &'static str, text: &str) -> Self {
        let text = text.trim().chars().take(Self::TEXT_LIMIT).collect();
        Self::Parse { path: path.into(), what, text }
    }

    /// The file or directory concerned.
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. } | Self::Write { path, .. } | Self::Parse { path, .. } => path,
        }
    }

    /// The kernel's error number, if there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => source.raw_os_error(),
            Self::Parse { .. } => None,
        }
    }

    /// Whether the object no longer exists: the task ended (`ESRCH`), the CPU or device went offline
    /// (`ENODEV`), the file or cgroup was removed (`ENOENT`).
    pub fn is_gone(&self) -> bool {
        self.errno().is_some_and(errno_is_gone)
    }

    /// Whether a privilege was missing (`EACCES`, `EPERM`).
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(libc::EACCES | libc::EPERM))
    }

    /// Whether the file is on a read-only mount (`EROFS`), like `/sys` in most containers.
    pub fn is_read_only(&self) -> bool {
        self.errno() == Some(libc::EROFS)
    }
}

/// See [`KernelError::is_gone`].
pub(crate) fn errno_is_gone(errno: i32) -> bool {
    matches!(errno, libc::ENOENT | libc::ESRCH | libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_path_and_operation() {
        let denied = io::Error::from_raw_os_error(libc::EACCES);
        let error = KernelError::write("/sys/x", "1", denied);
        assert!(error.to_string().starts_with("cannot write `1` to /sys/x: "), "{error}");
        assert!(error.is_denied() && !error.is_gone() && !error.is_read_only());
        let error = KernelError::parse("/proc/y", "a number", &"z".repeat(1000));
        assert!(error.to_string().len() < 200, "{error}");
        assert_eq!(error.errno(), None);
    }

    #[test]
    fn what_ended_is_gone() {
        for errno in [libc::ENOENT, libc::ESRCH, libc::ENODEV] {
            assert!(KernelError::read("/proc/1", io::Error::from_raw_os_error(errno)).is_gone());
        }
    }
}
