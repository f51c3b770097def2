//! Leases: every change is recorded before it is made, and undone however its holder dies.
//!
//! The lease file is append-only and each record is one `write` call, so a SIGKILL leaves at most a torn last
//! line, whose change was not made yet. Undoing compares first: a value that another program has changed
//! meanwhile is left alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use gleaner_kernel::Root;
use gleaner_kernel::lever::{Inherited, LeverError, Target, Value, Write};
use gleaner_proto::LineError;
use gleaner_proto::lease::{self, LeaseRecord};

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
    /// Rank by time of the first change.
    order: usize,
}

/// The leases of this process.
#[derive(Debug)]
pub struct LeaseBook {
    root: Root,
    path: PathBuf,
    file: File,
    leases: BTreeMap<Target, Lease>,
    taken: usize,
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
        let first = LeaseRecord::Holder { version: lease::VERSION, pid: std::process::id() };
        file.write_all(&line(&first)?).map_err(io)?;
        let book = Self {
            root,
            path,
            file,
            leases: BTreeMap::new(),
            taken: 0,
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
        if lease.is_some_and(|l| found != l.old && !l.ours.contains(&found)) {
            return Err(LeaseError::Theirs { target: target.clone(), found });
        }
        let old = lease.map_or(found, |l| l.old.clone());
        self.lease(target, &old, value)?;
        Ok(target.write(&self.root, value)?)
    }

    /// Takes the lease of a target that has the value `now` through an earlier change of ours: a thread
    /// inherits its parent's setting, but must get `original` back.
    ///
    /// # Errors
    /// The lease could not be recorded.
    pub fn inherit(&mut self, inherited: &Inherited) -> Result<(), LeaseError> {
        self.lease(&inherited.target, &inherited.original, &inherited.now)
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
        self.record(&LeaseRecord::Change { target: target.clone(), old: old.clone(), new: new.clone() })?;
        let taken = self.taken;
        let lease = self.leases.entry(target.clone()).or_insert_with(|| Lease {
            old: old.clone(),
            ours: Vec::new(),
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

    fn record(&mut self, record: &LeaseRecord) -> Result<(), LeaseError> {
        let bytes = line(record)?;
        self.file.write_all(&bytes).map_err(|source| LeaseError::Record { path: self.path.clone(), source })
    }
}

/// Undoes what a dead holder left, for `gleaner restore`.
///
/// # Errors
/// The holder lives ([`StateError::Busy`]), or the lease file is malformed; nothing is changed then.
pub fn restore(state: &StateDir, root: &Root) -> Result<Vec<Outcome>, LeaseError> {
    let _holder = state.lock()?;
    undo_file(state, root)
}

fn undo_file(state: &StateDir, root: &Root) -> Result<Vec<Outcome>, LeaseError> {
    let path = state.leases();
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut leases = BTreeMap::new();
    for (order, record) in
        lease::read(&path)?.map(|(_, records)| records).unwrap_or_default().into_iter().enumerate()
    {
        match record {
            LeaseRecord::Change { target, old, new } => {
                let lease = leases.entry(target).or_insert(Lease { old, ours: Vec::new(), order });
                lease.ours.push(new);
            }
            LeaseRecord::Released { target } => drop(leases.remove(&target)),
            LeaseRecord::Holder { .. } => {}
        }
    }
    let outcomes = undo_all(root, leases);
    if outcomes.iter().all(|o| o.undone != UndoResult::Failed) {
        std::fs::remove_file(&path).map_err(|source| StateError::Io { path, source })?;
    }
    Ok(outcomes)
}

fn undo_all(root: &Root, leases: BTreeMap<Target, Lease>) -> Vec<Outcome> {
    let mut leases: Vec<_> = leases.into_iter().collect();
    // Groups of ours go first. Their settings go with them, some of which the kernel would not restore while
    // processes are inside; and the controllers delegated to them become free to be restored.
    leases.sort_by_key(|(target, lease)| {
        (!matches!(target, Target::Group { .. }), std::cmp::Reverse(lease.order))
    });
    leases.iter().map(|(target, lease)| undo(root, target, lease)).collect()
}

fn undo(root: &Root, target: &Target, lease: &Lease) -> Outcome {
    let failed = |error: &LeverError| {
        let undone = if error.is_gone() { UndoResult::Gone } else { UndoResult::Failed };
        (undone, error.to_string())
    };
    let (undone, detail) = match target.read(root) {
        Err(error) => failed(&error),
        Ok(found) if found == lease.old => (UndoResult::Unchanged, format!("{target} is {found}, as before")),
        Ok(found) if !lease.ours.contains(&found) => {
            (UndoResult::Theirs, format!("{target} is {found}, changed by somebody else: left as it is"))
        }
        Ok(found) => match target.write(root, &lease.old) {
            Ok(()) => (UndoResult::Restored, restore_value(root, target, &found, &lease.old)),
            Err(error) => failed(&error),
        },
    };
    Outcome { target: target.clone(), undone, detail }
}

fn restore_value(root: &Root, target: &Target, found: &Value, old: &Value) -> String {
    match target.read(root) {
        Ok(now) if now != *old => {
            format!(
                "{target}: {found} back to {now}; `{old}`, which means the same, needs the processes' end"
            )
        }
        _ => format!("{target}: {found} back to {old}"),
    }
}

fn line(record: &LeaseRecord) -> Result<Vec<u8>, StateError> {
    let mut bytes = serde_json::to_vec(record)
        .map_err(|e| StateError::Io { path: "the lease record".into(), source: e.into() })?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests;
