//! Leases: every change is recorded before it is made, and undone however its holder dies.
//!
//! The lease file is append-only and each record is one `write` call, so a SIGKILL leaves at most a torn last
//! line, whose change was not made yet. Undoing compares first: a value that another program has changed
//! meanwhile is left alone.

mod compact;
mod undo;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use gleaner_kernel::Root;
use gleaner_kernel::lever::{Inherited, LeverError, Target, Value, Write};
use gleaner_proto::LineError;
use gleaner_proto::lease::{self, LeaseRecord};

use compact::Length;
pub use undo::restore;
use undo::{undo, undo_all, undo_file};

use crate::state::{Holder, StateDir, StateError};

/// Why leases cannot be taken or undone.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The lease file of an earlier holder is malformed. It and the machine are left untouched.
    #[error("{0}; put back by hand what it names, then remove it")]
    Malformed(LineError),
    /// The lease could not be recorded, so the change was not made.
    #[error("cannot record a lease in {}: {source}; nothing was changed", path.display())]
    Record {
        /// The lease file.
        path: PathBuf,
        /// The kernel's error.
        r#source: std::io::Error,
    },
    /// Another program changed the target meanwhile and owns it now.
    #[error("{target} is {found} now, changed by somebody else: left as it is")]
    Theirs {
        /// The target of the change.
        target: Target,
        /// Its present value.
        found: Value,
    },
    /// The change failed.
    #[error(transparent)]
    Lever(#[from] LeverError),
}

impl From<LineError> for LeaseError {
    fn from(error: LineError) -> Self {
        Self::Malformed(error)
    }
}

impl LeaseError {
    /// Whether the target no longer exists, so that there is nothing left to undo.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Lever(error) if error.is_gone())
    }
}

/// The result of undoing one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoResult {
    /// The old value was written back.
    Restored,
    /// The target had the old value: the change had not been made yet, or its owner undid it.
    Unchanged,
    /// Another program has changed it meanwhile; its value stays.
    Theirs,
    /// The file, CPU or thread no longer exists, nor does the change.
    Gone,
    /// Writing the old value failed.
    Failed,
}

/// The result for one lease.
#[derive(Debug)]
pub struct Outcome {
    /// The target of the change.
    pub target: Target,
    /// The result.
    pub undone: UndoResult,
    /// A sentence for the user: the values, or the error.
    pub detail: String,
}

#[derive(Debug, Clone)]
struct Lease {
    old: Value,
    /// Every value that we wrote or were about to write.
    ours: Vec<Value>,
    /// The value that we wrote last; not known of a dead holder's lease.
    held: Option<Value>,
    /// Rank by time of the first change.
    order: usize,
}

impl Lease {
    /// Whether `found` is a value of ours, rather than the old one or somebody else's.
    ///
    /// What belongs to the machine has the value that was written last, and an earlier one is back only if somebody
    /// wrote it. A thread can have inherited an earlier one, or kept it aside to set it again.
    fn is_ours(&self, target: &Target, found: &Value) -> bool {
        match &self.held {
            Some(held) if !target.is_of_thread() => found == held,
            _ => self.ours.contains(found),
        }
    }

    /// Whether nobody else can have written `found`, as far as that can be seen.
    fn is_undisturbed(&self, target: &Target, found: &Value) -> bool {
        self.is_ours(target, found) || (target.is_of_thread() && *found == self.old)
    }
}

/// The leases of this process.
#[derive(Debug)]
pub struct LeaseBook {
    root: Root,
    path: PathBuf,
    file: File,
    leases: BTreeMap<Target, Lease>,
    taken: usize,
    /// Of the file.
    length: Length,
    _holder: Holder,
    state: StateDir,
}

impl LeaseBook {
    /// Becomes the holder. Undoes the leases of a dead holder first and returns their outcomes.
    ///
    /// # Errors
    /// There is another live holder, root's Gleaner controls the machine, or the old lease file is malformed.
    pub fn open(state: &StateDir, root: Root) -> Result<(Self, Vec<Outcome>), LeaseError> {
        let holder = state.lock()?;
        state.check_right()?;
        let left = undo_file(state, &root)?;
        let path = state.leases();
        let io = |source| StateError::Io { path: path.clone(), source };
        let mut file = File::options().append(true).create(true).open(&path).map_err(io)?;
        file.write_all(&line(&first_record())?).map_err(io)?;
        let book = Self {
            root,
            path,
            file,
            leases: BTreeMap::new(),
            taken: 0,
            length: Length::default(),
            _holder: holder,
            state: state.clone(),
        };
        Ok((book, left))
    }

    /// The root under which targets are read and written.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Whether this process is still allowed to control the machine, see [`StateDir::check_right`].
    ///
    /// # Errors
    /// Root's Gleaner controls it.
    pub fn check_right(&self) -> Result<(), LeaseError> {
        Ok(self.state.check_right()?)
    }

    /// Records the change, then makes it. A change to the present value is skipped.
    ///
    /// # Errors
    /// The lease could not be recorded or another program changed the target (in both cases nothing was
    /// changed), or the change failed.
    pub fn set(&mut self, write: &Write) -> Result<(), LeaseError> {
        let Write { target, value } = write;
        let found = target.read(&self.root)?;
        if found == *value {
            return Ok(());
        }
        let lease = self.leases.get(target);
        if lease.is_some_and(|lease| !lease.is_undisturbed(target, &found)) {
            return Err(LeaseError::Theirs { target: target.clone(), found });
        }
        let old = lease.map_or(found, |l| l.old.clone());
        self.lease(target, &old, value)?;
        target.write(&self.root, value)?;
        if let Some(lease) = self.leases.get_mut(target) {
            lease.held = Some(value.clone());
        }
        self.compact_if_long();
        Ok(())
    }

    /// Whether `target` still has the value that was written last.
    ///
    /// # Errors
    /// [`LeaseError::Theirs`] if somebody else has changed it, and those of reading. A target that is not leased, or
    /// has its old value by our own doing, is nobody else's.
    pub fn check(&self, target: &Target) -> Result<(), LeaseError> {
        let Some(lease) = self.leases.get(target) else { return Ok(()) };
        if lease.held.as_ref() == Some(&lease.old) {
            return Ok(());
        }
        let found = target.read(&self.root)?;
        if lease.is_undisturbed(target, &found) {
            return Ok(());
        }
        Err(LeaseError::Theirs { target: target.clone(), found })
    }

    /// Takes the lease of a target that has the value `now` through an earlier change of ours: a thread
    /// inherits its parent's setting, but must get `original` back.
    ///
    /// # Errors
    /// The lease could not be recorded.
    pub fn inherit(&mut self, inherited: &Inherited) -> Result<(), LeaseError> {
        self.lease(&inherited.target, &inherited.original, &inherited.now)
    }

    /// Takes the lease of a target that gets the value `now` by another change of ours, about to be made, and has
    /// `original` without it.
    ///
    /// # Errors
    /// The lease could not be recorded.
    pub fn expect(&mut self, target: &Target, original: &Value, now: &Value) -> Result<(), LeaseError> {
        // Also where nothing changes: what is leased later is undone earlier.
        if self.holds(target) {
            self.lease(target, original, now)?;
        } else {
            self.take(target, original, now)?;
        }
        if let Some(lease) = self.leases.get_mut(target) {
            lease.held = Some(now.clone());
        }
        Ok(())
    }

    /// Restores the old value but keeps the lease, so that the next change needs no new record.
    ///
    /// # Errors
    /// As [`LeaseBook::set`].
    pub fn reset(&mut self, target: &Target) -> Result<(), LeaseError> {
        match self.leases.get(target).map(|lease| lease.old.clone()) {
            Some(value) => self.set(&Write { target: target.clone(), value }),
            None => Ok(()),
        }
    }

    /// The leased targets.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.leases.keys()
    }

    fn lease(&mut self, target: &Target, old: &Value, new: &Value) -> Result<(), LeaseError> {
        let known = self.leases.get(target);
        // The old value needs no record: undoing would find it "unchanged".
        if new == old || known.is_some_and(|l| l.ours.contains(new)) {
            return Ok(());
        }
        self.take(target, old, new)
    }

    fn take(&mut self, target: &Target, old: &Value, new: &Value) -> Result<(), LeaseError> {
        self.record(&LeaseRecord::Change { target: target.clone(), old: old.clone(), new: new.clone() })?;
        let taken = self.taken;
        let lease = self.leases.entry(target.clone()).or_insert_with(|| Lease {
            old: old.clone(),
            ours: Vec::new(),
            held: Some(old.clone()),
            order: taken,
        });
        lease.ours.push(new.clone());
        self.taken += 1;
        Ok(())
    }

    /// Restores one target and closes its lease. `None` if it was not leased.
    pub fn release(&mut self, target: &Target) -> Option<Outcome> {
        let lease = self.leases.remove(target)?;
        let outcome = undo(&self.root, target, &lease);
        if outcome.undone != UndoResult::Failed {
            // Without this record `restore` only checks the target again and finds it unchanged.
            let _ = self.record(&LeaseRecord::Released { target: target.clone() });
        }
        Some(outcome)
    }

    /// Restores these targets, the latest change first, and closes their leases. One that cannot be restored stays
    /// leased.
    pub fn release_all(&mut self, targets: &BTreeSet<Target>) -> Vec<Outcome> {
        let (open, closed) =
            std::mem::take(&mut self.leases).into_iter().partition(|(target, _)| !targets.contains(target));
        self.leases = open;
        let mut failed: BTreeMap<Target, Lease> = closed;
        let outcomes = undo_all(&self.root, failed.clone());
        for outcome in outcomes.iter().filter(|outcome| outcome.undone != UndoResult::Failed) {
            failed.remove(&outcome.target);
            // Without this record `restore` only checks the target again and finds it unchanged.
            let _ = self.record(&LeaseRecord::Released { target: outcome.target.clone() });
        }
        self.leases.append(&mut failed);
        outcomes
    }

    /// Restores everything, the latest change first, and closes the book.
    pub fn close(mut self) -> Vec<Outcome> {
        let outcomes = undo_all(&self.root, std::mem::take(&mut self.leases));
        if outcomes.iter().all(|o| o.undone != UndoResult::Failed) {
            // If the file stays, all its leases are undone: the next holder finds nothing to do.
            let _ = std::fs::remove_file(&self.path);
        }
        outcomes
    }

    /// Whether a target is leased.
    pub fn holds(&self, target: &Target) -> bool {
        self.leases.contains_key(target)
    }

    /// Number of leases.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether nothing is leased.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    fn record(&mut self, record: &LeaseRecord) -> Result<(), LeaseError> {
        let bytes = line(record)?;
        let written = self.file.write_all(&bytes);
        if written.is_err() {
            self.drop_fragment();
        }
        written.map_err(|source| LeaseError::Record { path: self.path.clone(), source })?;
        self.length.add(bytes.len());
        Ok(())
    }

    /// A full disk can leave a part of a record, which the next one would follow on the same line.
    fn drop_fragment(&mut self) {
        let Ok(text) = std::fs::read(&self.path) else { return };
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        // If that fails, too, the disk is broken: there is nothing left to try.
        let _ = self.file.set_len(whole as u64).and_then(|()| self.file.seek(SeekFrom::End(0)));
    }
}

fn first_record() -> LeaseRecord {
    LeaseRecord::Holder { version: lease::VERSION, pid: std::process::id() }
}

fn line(record: &LeaseRecord) -> Result<Vec<u8>, StateError> {
    let mut bytes = serde_json::to_vec(record)
        .map_err(|e| StateError::Io { path: "the lease record".into(), source: e.into() })?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests;
