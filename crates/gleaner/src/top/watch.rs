//! Samples the sensors, the journal and the lock together.

use std::path::PathBuf;

use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_trace::{Scope, ScopeError};

use super::follow::Follower;
use super::reading::{Reading, Sensors};
use super::view::{GleanerState, View};

/// The sensors, and their latest reading.
#[derive(Debug)]
pub(super) struct Watch {
    root: Root,
    state: StateDir,
    sensors: Sensors,
    follower: Follower,
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
        let follower = Follower::new(journal.unwrap_or_else(|| state.journal()));
        Ok(Self { root, state, sensors, follower, scope: name, last })
    }

    /// Takes a sample. Returns what happened since the last one.
    pub(super) fn sample(&mut self) -> View {
        let now = self.sensors.read();
        self.follower.update();
        let work = GleanerState {
            run: self.follower.run(),
            holder: self.state.holder(&self.root),
            problem: self.follower.problem(),
        };
        let view = View::new(&self.last, &now, work, &self.scope);
        self.last = now;
        view
    }
}
