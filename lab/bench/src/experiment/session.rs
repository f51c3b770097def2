//! What the samples of a run share: a temporary directory, the kernel settings from its start, and what has been
//! prepared.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_kernel::Root;
use gleaner_proto::result::Placement;
use tempfile::TempDir;

use super::program::{CELL, Program, portable};
use super::reset::reset_polling;
use crate::environment::kernel_settings::{self, KernelSettings};
use crate::mode::Mode;
use crate::servers::launch::Launch;
use crate::servers::running::Running;
use crate::servers::{self, ServersError, Window};

/// Timeout of a preparation.
const PREPARE: Duration = Duration::from_secs(3600);

/// Where `gleanerd` listens once it is ready.
const CONTROL_SOCKET: &str = "/run/gleaner/control.sock";

/// State of a run between its samples.
pub(crate) struct Session {
    gleaner: PathBuf,
    bench: PathBuf,
    state: TempDir,
    kernel_settings: KernelSettings,
    prepared: BTreeSet<String>,
    /// Whether an earlier sample might have left vCPUs polling.
    could_poll: bool,
}

impl Session {
    /// Starts a run with these binaries, `gleaner` and `gleaner-bench`.
    ///
    /// # Errors
    /// If a temporary directory cannot be made, or a kernel setting not be read.
    pub(crate) fn new(gleaner: &Path, bench: &Path) -> Result<Self, ServersError> {
        let state = tempfile::Builder::new().prefix("gleaner-bench.").tempdir();
        let state = state.map_err(ServersError::file("make a directory in", &std::env::temp_dir()))?;
        // Servers run as their own users and must be able to reach their directories in here.
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(state.path(), open).map_err(ServersError::file("open", state.path()))?;
        Ok(Self {
            gleaner: gleaner.to_owned(),
            bench: bench.to_owned(),
            state,
            kernel_settings: kernel_settings::read(&Root::system())?,
            prepared: BTreeSet::new(),
            could_poll: false,
        })
    }

    /// The directory for data, sockets and logs, which is removed after the run.
    pub(crate) fn state(&self) -> &Path {
        self.state.path()
    }

    /// Makes Gleaner calibrate wake-up costs if one of `modes` needs them: otherwise, the first run after a
    /// boot would do so within its sample.
    ///
    /// # Errors
    /// If `gleaner run` does not work at all.
    pub(crate) fn calibrate(&mut self, modes: &[Mode]) -> Result<(), ServersError> {
        if modes.contains(&Mode::Gleaner) || modes.contains(&Mode::Daemon) {
            self.could_poll = true;
            let wrapper = Mode::Gleaner.wrapper(&self.gleaner, &[]);
            Launch::new("true").group().wrapped(&wrapper).output()?;
        }
        Ok(())
    }

    /// Runs `prepare` before the first sample of `name`.
    ///
    /// # Errors
    /// Those of `prepare`.
    pub(crate) fn once<E>(
        &mut self,
        name: &str,
        prepare: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.prepared.contains(name) {
            prepare(self)?;
            self.prepared.insert(name.to_owned());
        }
        Ok(())
    }

    /// Runs a shell command to its end.
    ///
    /// # Errors
    /// If it fails or takes an hour, or a signal arrives.
    pub(crate) fn shell(&self, line: &str) -> Result<(), ServersError> {
        let running = self.launch(&Program::shell(line), &[]).start(&self.state().join("prepare"))?;
        running.wait_for_success(PREPARE)
    }

    /// Makes a sample in `mode` start like the first one: with the same kernel settings, and without what the
    /// samples before it have left.
    ///
    /// # Errors
    /// If a setting does not return to its old value.
    pub(crate) fn settle(&mut self, mode: &Mode) -> Result<(), ServersError> {
        kernel_settings::wait_for(&Root::system(), &self.kernel_settings)?;
        // For every sample after the first such mode, so that none has an advantage.
        if self.could_poll {
            reset_polling()?;
        }
        self.could_poll |= *mode != Mode::Default;
        Ok(())
    }

    /// Starts `gleanerd` with its defaults if `mode` has it beside the sample; it stops when it is dropped. What it learns
    /// is kept for the later samples of this run.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) fn daemon(&self, mode: &Mode) -> Result<Option<Running>, ServersError> {
        if *mode != Mode::Daemon {
            return Ok(None);
        }
        let gleanerd = self.gleaner.with_file_name(Mode::DAEMON);
        let memory = format!("GLEANER_MEMORY={}", self.state().join("memory").display());
        let launch = Launch::new(&gleanerd.to_string_lossy()).wrapped(&["env".into(), memory.into()]);
        let mut running = launch.start(&self.state().join("gleanerd.log"))?;
        running.wait_ready(|| UnixStream::connect(CONTROL_SOCKET).is_ok())?;
        Ok(Some(running))
    }

    /// The words to put before a command in `mode`, and where Gleaner's journal then goes.
    ///
    /// # Errors
    /// If an earlier sample's journal cannot be removed.
    pub(crate) fn wrapper(&self, mode: &Mode) -> Result<(Vec<OsString>, PathBuf), ServersError> {
        let journal = self.state().join("journal");
        // If Gleaner writes none, an earlier sample's must not be read.
        match fs::remove_file(&journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ServersError::file("remove", &journal)(error))
            }
            _ => Ok((mode.wrapper_with_journal(&self.gleaner, &journal), journal)),
        }
    }

    /// Prepares the start of a program behind the words of a mode: of a server alone, where only that is in it.
    pub(crate) fn launch(&self, program: &Program, wrapper: &[OsString]) -> Launch {
        let launch = program.launch(&self.gleaner, &self.bench, self.state());
        match program {
            _ if wrapper.is_empty() => launch,
            Program::Server { row, .. } if row.placement == Placement::ServerOnly => {
                launch.arg("--").args(wrapper)
            }
            _ => launch.wrapped(wrapper),
        }
    }

    /// Measures a server once, in a process of its own. Its data is prepared.
    ///
    /// # Errors
    /// If that process fails, times out or writes something unknown, or if a signal arrives.
    pub(crate) fn serve(
        &self,
        row: &servers::Row,
        window: Window,
        wrapper: &[OsString],
    ) -> Result<servers::Measured, ServersError> {
        let out = self.state().join(CELL);
        let launch = self.launch(&Program::Server { row: *row, window }, wrapper);
        launch.start(&self.state().join("cell.log"))?.wait_for_success(window.timeout())?;
        let text = fs::read_to_string(&out).map_err(ServersError::file("read", &out))?;
        // Otherwise, a later cell that writes nothing would get this result.
        fs::remove_file(&out).map_err(ServersError::file("remove", &out))?;
        serde_json::from_str(&text)
            .map_err(|_| ServersError::Answer { program: "gleaner-bench cell", answer: text })
    }

    /// Replaces the run's own paths in `text`, so that the results of two runs can be compared.
    pub(crate) fn portable(&self, text: &str) -> String {
        let text = text.replace(&*self.bench.to_string_lossy(), "gleaner-bench");
        portable(&text, &self.gleaner, self.state())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_is_open_to_servers_and_removed() {
        let session = Session::new(Path::new("/x/gleaner"), Path::new("/y/bench")).unwrap();
        let dir = session.state().to_owned();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o755);
        fs::write(dir.join("x"), "x").unwrap();
        assert_eq!(session.portable(&format!("/y/bench {}/x", dir.display())), "gleaner-bench $STATE/x");
        drop(session);
        assert!(!dir.exists());
    }

    #[test]
    fn what_is_prepared_is_prepared_once() {
        let mut session = Session::new(Path::new("/x/gleaner"), Path::new("/y/bench")).unwrap();
        let line = "test ! -e $STATE/made && touch $STATE/made";
        for _ in 0..2 {
            session.once("row", |session| session.shell(line)).unwrap();
        }
        assert!(session.once("other", |session| session.shell(line)).is_err());
        assert!(session.once("other", |session| session.shell("true")).is_ok());
    }
}
