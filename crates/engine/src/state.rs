//! Where the state of a running Gleaner lies, and who may write it: one holder at a time.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another Gleaner controls this machine.
    #[error(
        "another gleaner (pid {pid}) already controls this machine: stop it, or use `gleaner attach` after it ended"
    )]
    Busy {
        /// The process that holds the lock.
        pid: String,
    },
    /// The directory belongs to somebody else.
    #[error("{} belongs to user {owner}: remove it, or set XDG_RUNTIME_DIR to a folder of yours", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner's uid.
        owner: u32,
    },
    /// The directory or its lock cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the kernel answered.
        r#source: std::io::Error,
    },
}

/// The directory with the lock, the lease file and the latest journal.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// `/run/gleaner` for root; for others `$XDG_RUNTIME_DIR/gleaner`, or `/tmp/gleaner-UID` without one.
    ///
    /// # Errors
    /// It cannot be made, or is somebody else's.
    pub fn default_place() -> Result<Self, StateError> {
        let uid = nix::unistd::geteuid();
        let path = if uid.is_root() {
            PathBuf::from("/run/gleaner")
        } else {
            std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty()).map_or_else(
                || PathBuf::from(format!("/tmp/gleaner-{uid}")),
                |dir| PathBuf::from(dir).join("gleaner"),
            )
        };
        Self::at(path)
    }

    /// The state directory `path`, made if it is missing.
    ///
    /// # Errors
    /// As [`StateDir::default_place`].
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, StateError> {
        let path = path.into();
        let io = |source| StateError::Io { path: path.clone(), source };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&path).map_err(io)?;
        let owner = fs::symlink_metadata(&path).map_err(io)?.uid();
        if owner != nix::unistd::geteuid().as_raw() {
            return Err(StateError::Foreign { path, owner });
        }
        Ok(Self { path })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lease file.
    pub fn leases(&self) -> PathBuf {
        self.path.join("leases")
    }

    /// The journal of the latest run that did not name its own.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// The wake costs measured since boot.
    pub fn calibration(&self) -> PathBuf {
        self.path.join("calibration.json")
    }

    /// Becomes the holder; the lock ends with the process, however it ends.
    ///
    /// # Errors
    /// [`StateError::Busy`] names the present holder.
    pub fn lock(&self) -> Result<Holder, StateError> {
        let path = self.path.join("lock");
        let io = |source| StateError::Io { path: path.clone(), source };
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                lock.set_len(0).map_err(io)?;
                writeln!(lock, "{}", std::process::id()).map_err(io)?;
                Ok(Holder { _lock: lock })
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(io)?;
                Err(StateError::Busy { pid: pid.trim().to_owned() })
            }
            Err((_, errno)) => Err(io(errno.into())),
        }
    }
}

/// The right to change the machine, as long as it lives.
#[derive(Debug)]
pub struct Holder {
    _lock: Flock<File>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_holder_is_refused_with_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path().join("gleaner")).unwrap();
        let first = state.lock().unwrap();
        let error = state.lock().unwrap_err().to_string();
        assert!(error.contains(&format!("(pid {})", std::process::id())), "{error}");
        drop(first);
        state.lock().unwrap();
    }
}
