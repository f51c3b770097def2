//! The state directory of a running Gleaner, with one holder at a time.
//!
//! Some levers act on the whole machine and need root: the holder of [`ROOT_STATE_DIR`] controls the
//! machine. Other users only place their own threads. They have a state directory and a lock of their own, and
//! leave the machine to root.

mod holder;
mod journals;

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use gleaner_kernel::Root;
use nix::fcntl::{Flock, FlockArg};

/// Root's state directory, readable by everyone, to see who controls the machine.
const ROOT_STATE_DIR: &str = "/run/gleaner";
/// The lock file. Only its owner can open it, since anyone who can open a file can lock others out.
const LOCK_FILE: &str = "lock";
/// PID of the holder, readable by everyone.
const HOLDER_FILE: &str = "holder";

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another Gleaner controls this machine.
    #[error("{}", busy(pid, *roots))]
    Busy {
        /// PID of the process that holds the lock.
        pid: String,
        /// Whether it is root's and this process is not.
        roots: bool,
    },
    /// The directory belongs to another user.
    #[error("{} belongs to user {owner}: remove it, or set XDG_RUNTIME_DIR to a folder of yours", path.display())]
    Foreign {
        /// The directory in question.
        path: PathBuf,
        /// The owner's UID.
        owner: u32,
    },
    /// The directory or its lock cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file or directory in question.
        path: PathBuf,
        /// The kernel's error.
        r#source: io::Error,
    },
}

fn busy(pid: &str, roots: bool) -> String {
    if roots {
        format!(
            "root's gleaner (pid {pid}) controls this machine, and goes first: start again when it has ended"
        )
    } else {
        format!(
            "another gleaner (pid {pid}) already controls this machine: stop it, or use `gleaner attach` after it ended"
        )
    }
}

/// The directory with the lock, the lease file and the latest journal.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// `/run/gleaner` for root; for others `$XDG_RUNTIME_DIR/gleaner`, or `/tmp/gleaner-UID` without that
    /// variable.
    ///
    /// # Errors
    /// It cannot be created, or belongs to another user.
    pub fn default_place() -> Result<Self, StateError> {
        let uid = nix::unistd::geteuid();
        let path = if uid.is_root() {
            PathBuf::from(ROOT_STATE_DIR)
        } else {
            std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty()).map_or_else(
                || PathBuf::from(format!("/tmp/gleaner-{uid}")),
                |dir| PathBuf::from(dir).join("gleaner"),
            )
        };
        Self::at(path)
    }

    /// The state directory `path`, created if missing.
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
        if path == Path::new(ROOT_STATE_DIR) {
            // Independent of the umask: others see here who controls the machine.
            fs::set_permissions(&path, Permissions::from_mode(0o755)).map_err(io)?;
        }
        Ok(Self { path })
    }

    /// The state directory `path`, whoever owns it, to look at: nothing is made, and it need not exist.
    pub fn seen(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lease file.
    pub fn leases(&self) -> PathBuf {
        self.path.join("leases")
    }

    /// The journal of the latest run without `--journal`.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// The wake costs measured since boot.
    pub fn calibration(&self) -> PathBuf {
        self.path.join("calibration.json")
    }

    /// Becomes the holder; the lock ends with the process, however that ends.
    ///
    /// # Errors
    /// [`StateError::Busy`] names the present holder.
    pub fn lock(&self) -> Result<Holder, StateError> {
        let path = self.path.join(LOCK_FILE);
        let io = |source| StateError::Io { path: path.clone(), source };
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io)?;
        let written = self.path.join(HOLDER_FILE);
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => {
                // An older lock file can be accessible to others.
                lock.set_permissions(Permissions::from_mode(0o600)).map_err(io)?;
                let pid = format!("{}\n", std::process::id());
                fs::write(&written, pid)
                    .and_then(|()| fs::set_permissions(&written, Permissions::from_mode(0o644)))
                    .map_err(|source| StateError::Io { path: written, source })?;
                Ok(Holder { _lock: lock })
            }
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                // The holder might not have written its PID yet.
                let pid = fs::read_to_string(&written).unwrap_or_default();
                Err(StateError::Busy { pid: pid.trim().to_owned(), roots: false })
            }
            Err((_, errno)) => Err(io(errno.into())),
        }
    }

    /// PID of the holder; `None` if there is none or it cannot be seen. Does not touch the lock.
    pub fn holder(&self, root: &Root) -> Option<u32> {
        holder::holder(root, &self.path)
    }

    /// Whether a Gleaner with this state directory is allowed to control the machine: root's always is, others
    /// only while root's does not.
    ///
    /// # Errors
    /// [`StateError::Busy`] names root's Gleaner.
    pub fn check_right(&self) -> Result<(), StateError> {
        if nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        match holder::holder(&Root::system(), Path::new(ROOT_STATE_DIR)) {
            Some(pid) => Err(StateError::Busy { pid: pid.to_string(), roots: true }),
            None => Ok(()),
        }
    }
}

/// The right to change the machine; held while it lives.
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

    #[test]
    fn the_lock_is_its_owners_and_the_holder_is_for_everybody_to_read() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path().join("gleaner")).unwrap();
        let _held = state.lock().unwrap();
        let mode = |name| fs::metadata(state.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(LOCK_FILE), mode(HOLDER_FILE)), (0o600, 0o644));
    }
}
