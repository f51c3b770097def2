//! Samples the sensors and, together with them, the daemon, or else the journal and the lock.

use std::path::PathBuf;
use std::time::Duration;

use gleaner_control::{Client, ClientError, Status};
use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_trace::{Scope, ScopeError};

use super::follow::Follower;
use super::reading::{Reading, Sensors};
use super::view::{GleanerState, View};
use crate::client;

/// How long the screen waits for the daemon.
const DAEMON_TIME: Duration = Duration::from_millis(500);

/// The sensors, and their latest reading.
#[derive(Debug)]
pub(super) struct Watch {
    root: Root,
    state: StateDir,
    sensors: Sensors,
    follower: Follower,
    /// Whether a daemon is asked: unless the user named a journal.
    asks: bool,
    /// The connection to the daemon, if one runs.
    daemon: Option<Client>,
    scope: String,
    last: Reading,
}

impl Watch {
    /// Takes a first sample. `journal`: `None` for the one in the state directory. `scope`: whose wake-ups to trace,
    /// with a name for it.
    ///
    /// # Errors
    /// There is no such scope.
    pub(super) fn new(
        state: StateDir,
        journal: Option<PathBuf>,
        scope: Option<(Scope, String)>,
    ) -> Result<Self, ScopeError> {
        let root = Root::system();
        let (scope, name) = scope.map_or_else(Default::default, |(scope, name)| (Some(scope), name));
        let mut sensors = Sensors::new(root.clone(), scope.as_ref())?;
        let last = sensors.read();
        let asks = journal.is_none();
        let follower = Follower::new(journal.unwrap_or_else(|| state.journal()));
        Ok(Self { root, state, sensors, follower, asks, daemon: None, scope: name, last })
    }

    /// Takes a sample. Returns what happened since the last one.
    pub(super) fn sample(&mut self) -> View {
        let now = self.sensors.read();
        let (daemon, refusal) = match self.ask() {
            Ok(status) => (status, None),
            Err(error) => (None, Some(error.to_string())),
        };
        self.follower.update();
        let work = GleanerState {
            daemon: daemon.as_ref(),
            run: self.follower.run(),
            holder: self.state.holder(&self.root),
            problem: self.follower.problem().or(refusal.as_deref()),
        };
        let view = View::new(&self.last, &now, work, &self.scope);
        self.last = now;
        view
    }

    /// What the daemon does now; `None` if none runs.
    fn ask(&mut self) -> Result<Option<Status>, ClientError> {
        if !self.asks {
            return Ok(None);
        }
        if self.daemon.is_none() {
            self.daemon = client::find()?;
        }
        let Some(daemon) = &mut self.daemon else { return Ok(None) };
        let status = daemon.wait_at_most(Some(DAEMON_TIME)).and_then(|()| daemon.status());
        if status.is_err() {
            // The next sample finds out whether another one runs by then.
            self.daemon = None;
        }
        status.map(Some)
    }
}
