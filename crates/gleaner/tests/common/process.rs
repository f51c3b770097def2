//! Gleaner, and its built-in workloads, as processes that end with their test.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::process::{Command, Output};

use gleaner_testing::process;

pub(crate) use gleaner_testing::process::{text, until, until_runs};

pub(crate) const GLEANER: &str = env!("CARGO_BIN_EXE_gleaner");

pub(crate) fn gleaner(args: &[&str]) -> Output {
    Command::new(GLEANER).args(args).output().unwrap()
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(GLEANER);
    command.args(args);
    command
}

/// A process in its own process group. Dropping it kills the whole group.
pub(crate) struct Running(process::Running);

impl Running {
    /// Starts `command` with its standard input, output and error piped.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(process::Running::start(command))
    }

    /// Starts `gleaner workload` with these arguments, and waits until its threads are at work: from then on a signal
    /// ends it as it should.
    pub(crate) fn start_workload(args: &[&str]) -> Self {
        let running = Self::start(command(&["workload"]).args(args));
        let tasks = format!("/proc/{}/task", running.pid());
        until("its threads are there", || fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > 1));
        running
    }

    /// Closes the standard input, and waits for the process and everything it started.
    #[track_caller]
    pub(crate) fn finish(self) -> Output {
        self.0.finish()
    }
}

impl Deref for Running {
    type Target = process::Running;

    fn deref(&self) -> &process::Running {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut process::Running {
        &mut self.0
    }
}
