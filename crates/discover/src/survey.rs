//! Finds the workloads of this machine and what each of them consumes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_kernel::workload::Members;
use gleaner_kernel::{KernelError, Root};

use crate::{Candidate, Key, Subject};

/// The candidates of this machine, followed from survey to survey.
#[derive(Debug)]
pub struct Survey {
    _root: Root,
}

impl Survey {
    /// Looks at nothing yet.
    ///
    /// # Errors
    /// `/proc` is not readable.
    pub fn new(root: &Root) -> Result<Self, KernelError> {
        Ok(Self { _root: root.clone() })
    }

    /// Takes a survey: afterwards [`Survey::candidates`] has what there is. `allows` is asked whether a workload is
    /// to be looked into: for a group before anything in it is opened, and again once its executable is known. What
    /// vanishes meanwhile is no error.
    ///
    /// # Errors
    /// `/proc` is not readable.
    pub fn take(&mut self, allows: &mut dyn FnMut(&Subject<'_>) -> bool) -> Result<(), KernelError> {
        let _ = allows;
        Ok(())
    }

    /// The candidates of the last survey, ordered by key.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        std::iter::empty()
    }

    /// The candidate with this key, if it is still there.
    pub fn get(&self, _key: &Key) -> Option<&Candidate> {
        None
    }

    /// What the engine's sensors are to follow.
    pub fn members(&self, candidate: &Candidate) -> Members {
        match &candidate.key {
            Key::Group(path) => Members::Cgroup(path.clone()),
            Key::Process { pid, .. } => Members::Tree(*pid),
        }
    }

    /// The directory of the candidate's group in the hierarchy that is walked; `None` for a process.
    pub fn group_dir(&self, _candidate: &Candidate) -> Option<PathBuf> {
        None
    }

    /// The mount point of the hierarchy that is walked: the one that holds the processes of this machine.
    pub fn hierarchy(&self) -> Option<&Path> {
        None
    }

    /// CPU time that the last survey took.
    pub fn cost(&self) -> Duration {
        Duration::ZERO
    }

    /// How long to wait before the next survey, so that all surveys take at most 1/200 of the time.
    pub fn wait(&self) -> Duration {
        Duration::from_millis(100)
    }
}
