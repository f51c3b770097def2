//! The directory of a cell's data, sockets and logs, and the server that runs in it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::error::{Result, ServersError};
use super::launch::{Launch, make_dir};
use super::running::Running;

/// A server that is ready for its client.
pub(super) struct Server {
    pub(super) running: Running,
    pub(super) command: String,
}

/// The directory with a cell's prepared data, sockets and logs, and the wrapper of its server's command line.
pub(super) struct CellContext<'a> {
    dir: PathBuf,
    wrapper: &'a [OsString],
}

impl<'a> CellContext<'a> {
    /// Creates the directory `name` in `state`.
    pub(super) fn new(state: &Path, name: &str, wrapper: &'a [OsString]) -> Result<Self> {
        // Servers change their directory, which would invalidate relative paths.
        let dir = std::path::absolute(state.join(name)).map_err(ServersError::file("find", state))?;
        make_dir(&dir, None)?;
        Ok(Self { dir, wrapper })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A subdirectory, for the second server of a row.
    pub(super) fn below(&self, name: &str) -> Result<Self> {
        let dir = self.path(name);
        make_dir(&dir, None)?;
        Ok(Self { dir, wrapper: self.wrapper })
    }

    /// The directory of a database's data; belongs to the user that the server runs as.
    pub(super) fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Lets `make` fill an empty [`CellContext::data`] that belongs to `user`, unless that has been done. Removes
    /// the remains of failed attempts.
    pub(super) fn prepare_data(&self, user: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let (done, data) = (self.path("prepared"), self.data());
        if done.exists() {
            return Ok(());
        }
        if data.exists() {
            fs::remove_dir_all(&data).map_err(ServersError::file("remove", &data))?;
        }
        make_dir(&data, Some(user))?;
        make(&data)?;
        fs::write(&done, "").map_err(ServersError::file("write", &done))
    }

    pub(super) fn server(&self, launch: Launch, pid_file: &Path, ready: impl Fn() -> bool) -> Result<Server> {
        let launch = launch.wrapped(self.wrapper).pid_file(pid_file);
        let mut running = launch.start(&self.path("server.log"))?;
        running.wait_ready(ready)?;
        Ok(Server { running, command: launch.line() })
    }
}
