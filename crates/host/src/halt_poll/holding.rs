//! Changes of KVM's parameters under leases: each is recorded before it is made, and undone however its holder ends.

use std::collections::BTreeMap;

use gleaner_engine::{LeaseBook, LeaseError, Outcome, StateDir, StateError, UndoResult};
use gleaner_kernel::Root;
use gleaner_kernel::lever::{Target, Value};

use super::Change;

/// Where the leases are. They are not in the state directory of `gleaner` and `gleanerd`, which change other files: a host
/// that is a VM itself can run both.
pub const STATE_DIR: &str = "/run/gleaner-host";

/// Why KVM's parameters cannot be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// Another one holds them.
    #[error("process {pid}, a gleaner-host, holds KVM's halt polling already: stop it first")]
    Held {
        /// The other one.
        pid: String,
    },
    /// Somebody else has changed a parameter meanwhile, and owns it now, or a lease failed.
    #[error(transparent)]
    Lease(LeaseError),
}

impl From<LeaseError> for HoldError {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::State(StateError::Busy { pid, .. }) => Self::Held { pid },
            error => Self::Lease(error),
        }
    }
}

impl HoldError {
    /// Whether somebody else has changed a parameter.
    pub fn is_theirs(&self) -> bool {
        matches!(self, Self::Lease(LeaseError::Theirs { .. }))
    }
}

/// The parameters that this process has changed. Dropping it undoes nothing: [`Holding::close`] does, and [`restore`] after
/// its process was killed.
#[derive(Debug)]
pub struct Holding {
    book: LeaseBook,
    /// What was put in force last, also where it was so already and no lease was needed: whoever changes that owns it, too.
    last: BTreeMap<Target, Value>,
}

impl Holding {
    /// Becomes the holder. Undoes what a killed one left, and returns that.
    ///
    /// # Errors
    /// There is another holder, or the leases that a killed one left are malformed.
    pub fn open(state: &StateDir, root: Root) -> Result<(Self, Vec<Outcome>), HoldError> {
        let (book, left) = LeaseBook::open(state, root)?;
        Ok((Self { book, last: BTreeMap::new() }, left))
    }

    /// Puts `change` in force.
    ///
    /// # Errors
    /// A lease cannot be recorded or somebody else has changed the parameter (nothing was changed by this write), or the
    /// write failed.
    pub fn set(&mut self, change: &Change) -> Result<(), HoldError> {
        for write in change.writes() {
            self.check_one(&write.target)?;
            self.book.set(&write)?;
            self.last.insert(write.target, write.value);
        }
        Ok(())
    }

    /// Whether everything that was put in force still is.
    ///
    /// # Errors
    /// Somebody else has changed it, or KVM was unloaded.
    pub fn check(&self) -> Result<(), HoldError> {
        self.last.keys().try_for_each(|target| self.check_one(target))
    }

    fn check_one(&self, target: &Target) -> Result<(), HoldError> {
        let Some(last) = self.last.get(target) else { return Ok(()) };
        let found = target.read(self.book.root()).map_err(LeaseError::from)?;
        if found == *last {
            return Ok(());
        }
        Err(LeaseError::Theirs { target: target.clone(), found }.into())
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.book.is_empty()
    }

    /// Puts everything back that is still ours.
    pub fn close(self) -> Vec<Outcome> {
        self.book.close()
    }
}

/// Puts back what a killed holder left.
///
/// # Errors
/// The holder lives, or its leases are malformed; nothing is changed then.
pub fn restore(state: &StateDir, root: &Root) -> Result<Vec<Outcome>, HoldError> {
    Ok(gleaner_engine::restore(state, root)?)
}

/// What could not be put back, as sentences.
pub fn left_behind(outcomes: &[Outcome]) -> Vec<String> {
    let failed = outcomes.iter().filter(|outcome| outcome.undone == UndoResult::Failed);
    failed.map(|outcome| outcome.detail.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::halt_poll::Parameters;
    use crate::halt_poll::testing::kvm;

    const LIMIT: &str = "/sys/module/kvm/parameters/halt_poll_ns";

    fn limit(root: &Root) -> u32 {
        Parameters::read(root).unwrap().halt_poll_ns
    }

    #[test]
    fn what_is_held_is_put_back_at_the_end() {
        let (dir, root) = kvm();
        let state = StateDir::at(dir.path().join("state")).unwrap();
        let before = Parameters::read(&root).unwrap();
        let (mut holding, left) = Holding::open(&state, root.clone()).unwrap();
        assert!(left.is_empty() && holding.is_empty());
        let change = Change { shrink: Some(0), grow: Some(4), ..Change::limit(50_000) };
        holding.set(&change).unwrap();
        holding.check().unwrap();
        let held = Parameters::read(&root).unwrap();
        assert_eq!((held.halt_poll_ns, held.grow, held.grow_start, held.shrink), (50_000, 4, 10_000, 0));
        let outcomes = holding.close();
        assert_eq!(outcomes.len(), 3);
        assert!(left_behind(&outcomes).is_empty());
        assert_eq!(Parameters::read(&root).unwrap(), before);
    }

    #[test]
    fn what_a_killed_holder_leaves_is_restored_from_its_leases() {
        let (dir, root) = kvm();
        let state = StateDir::at(dir.path().join("state")).unwrap();
        let (mut holding, _) = Holding::open(&state, root.clone()).unwrap();
        holding.set(&Change::limit(0)).unwrap();
        // Ends without undoing, as by SIGKILL; the lock ends with it.
        drop(holding);
        assert_eq!(limit(&root), 0);
        let outcomes = restore(&state, &root).unwrap();
        assert_eq!((outcomes.len(), outcomes[0].undone), (1, UndoResult::Restored));
        assert_eq!(limit(&root), 200_000);
        assert!(restore(&state, &root).unwrap().is_empty());
    }

    #[test]
    fn the_next_holder_restores_it_too() {
        let (dir, root) = kvm();
        let state = StateDir::at(dir.path().join("state")).unwrap();
        let (mut holding, _) = Holding::open(&state, root.clone()).unwrap();
        holding.set(&Change::limit(7)).unwrap();
        drop(holding);
        let (_next, left) = Holding::open(&state, root.clone()).unwrap();
        assert_eq!((left.len(), limit(&root)), (1, 200_000));
    }

    #[test]
    fn an_administrators_value_is_noticed_and_stays() {
        let (dir, root) = kvm();
        let state = StateDir::at(dir.path().join("state")).unwrap();
        let (mut holding, _) = Holding::open(&state, root.clone()).unwrap();
        holding.set(&Change::limit(0)).unwrap();
        fs::write(root.path(LIMIT), "400000\n").unwrap();
        assert!(holding.check().unwrap_err().is_theirs());
        let error = holding.set(&Change::limit(50_000)).unwrap_err();
        assert!(error.is_theirs() && error.to_string().contains("changed by somebody else"), "{error}");
        assert_eq!(holding.close()[0].undone, UndoResult::Theirs);
        assert_eq!(limit(&root), 400_000);
    }

    #[test]
    fn a_value_that_needed_no_lease_is_held_too() {
        let (dir, root) = kvm();
        let state = StateDir::at(dir.path().join("state")).unwrap();
        let (mut holding, _) = Holding::open(&state, root.clone()).unwrap();
        holding.set(&Change::limit(200_000)).unwrap();
        assert!(holding.is_empty());
        holding.check().unwrap();
        fs::write(root.path(LIMIT), "400000\n").unwrap();
        assert!(holding.check().unwrap_err().is_theirs());
        assert!(holding.set(&Change::limit(200_000)).unwrap_err().is_theirs());
        assert!(holding.close().is_empty());
        assert_eq!(limit(&root), 400_000);
    }

    #[test]
    fn there_is_one_holder_and_the_second_one_learns_who_it_is() {
        let (dir, root) = kvm();
        let state = StateDir::at(dir.path().join("state")).unwrap();
        let (_holding, _) = Holding::open(&state, root.clone()).unwrap();
        let error = Holding::open(&state, root.clone()).unwrap_err();
        assert!(matches!(error, HoldError::Held { .. }), "{error}");
        assert!(error.to_string().contains(&format!("process {},", std::process::id())), "{error}");
        assert!(matches!(restore(&state, &root), Err(HoldError::Held { .. })), "it lives");
    }
}
