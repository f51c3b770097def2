//! The listening socket: its file, the right to use it, and its removal.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::unistd::Gid;

use crate::peer;

/// For the owner and the group.
const MODE: u32 = 0o660;

/// Why the control socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another daemon serves it.
    #[error("another gleanerd (pid {pid}) serves {}: stop it first (`systemctl stop gleanerd`)", path.display())]
    Live {
        /// The socket.
        path: PathBuf,
        /// The process that listens.
        pid: i32,
    },
    /// Something else is in its place.
    #[error("{} is not a socket: move it away", path.display())]
    Occupied {
        /// The file in question.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("cannot {what} the control socket {}: {source}", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        r#source: io::Error,
    },
}

/// Listens at `path`, for root and `group`. Replaces the socket that a dead daemon left.
pub(super) fn listen(path: &Path, group: Option<Gid>) -> Result<(UnixListener, Owned), BindError> {
    let io = |what| move |source| BindError::Io { what, path: path.to_owned(), source };
    check_free(path)?;
    // Under another name until its mode is right; `rename` then replaces what is left of a dead daemon's.
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = Owned { path: PathBuf::from(new), inode: None };
    let _ = fs::remove_file(&new.path);
    let listener = UnixListener::bind(&new.path).map_err(io("make"))?;
    let new = new.identified();
    chown(&new.path, None, group.map(Gid::as_raw)).map_err(io("set the group of"))?;
    fs::set_permissions(&new.path, Permissions::from_mode(MODE)).map_err(io("set the mode of"))?;
    fs::rename(&new.path, path).map_err(io("make"))?;
    let owned = Owned { path: path.to_owned(), inode: None }.identified();
    Ok((listener, owned))
}

/// That nobody listens at `path`, and that nothing else is there.
fn check_free(path: &Path) -> Result<(), BindError> {
    let io = |source| BindError::Io { what: "use", path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(BindError::Occupied { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(stream) => {
            let pid = peer::credentials(&stream).map_or(0, |(_, _, pid)| pid);
            Err(BindError::Live { path: path.to_owned(), pid })
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(io(error)),
    }
}

/// The socket's file; removed on drop, unless another one is there by then.
#[derive(Debug)]
pub(super) struct Owned {
    path: PathBuf,
    /// Device and inode.
    inode: Option<(u64, u64)>,
}

impl Owned {
    fn identified(mut self) -> Self {
        self.inode = inode(&self.path);
        self
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.inode.is_some() && self.inode == inode(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
