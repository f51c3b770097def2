//! A socket that listens: its file and its removal.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why nobody can be answered at a socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process does.
    #[error("another process answers at {}: end it first", path.display())]
    Live {
        /// The socket.
        path: PathBuf,
    },
    /// Something else is in its place.
    #[error("{} is not a socket: move it away", path.display())]
    Occupied {
        /// The file in question.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("cannot make the socket {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        r#source: io::Error,
    },
}

/// It listens until dropped; then its file is removed, unless another one is there by then.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    path: PathBuf,
    /// Device and inode.
    inode: Option<(u64, u64)>,
}

impl Socket {
    /// For the owner alone.
    pub(super) fn at(path: &Path) -> Result<Self, ListenError> {
        let io = |source| ListenError::Io { path: path.to_owned(), source };
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(io)?;
        }
        check_free(path)?;
        // Under another name until its mode is right; `rename` then replaces what a dead process left.
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".{}", std::process::id()));
        let new = PathBuf::from(new);
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&new).map_err(io)?;
        let named = fs::set_permissions(&new, Permissions::from_mode(0o600))
            .and_then(|()| listener.set_nonblocking(true))
            .and_then(|()| fs::rename(&new, path));
        if let Err(error) = named {
            let _ = fs::remove_file(&new);
            return Err(io(error));
        }
        Ok(Self { listener, path: path.to_owned(), inode: inode(path) })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.inode.is_some() && self.inode == inode(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// That nobody listens at `path`, and that nothing else is there.
fn check_free(path: &Path) -> Result<(), ListenError> {
    let path = || path.to_owned();
    match fs::symlink_metadata(path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(ListenError::Io { path: path(), source }),
        Ok(found) if !found.file_type().is_socket() => return Err(ListenError::Occupied { path: path() }),
        Ok(_) => {}
    }
    match UnixStream::connect(path()) {
        Ok(_) => Err(ListenError::Live { path: path() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(source) => Err(ListenError::Io { path: path(), source }),
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
