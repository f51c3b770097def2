//! Leases: every change is recorded before it is made, and undone however its holder dies.
//!
//! The lease file is append-only and each record is written with one `write` call, so that a SIGKILL leaves at
//! most a torn last line, whose change was not made yet. Undoing compares first: a value that somebody else has
//! changed meanwhile stays theirs.

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
    /// The lease file of an earlier holder cannot be understood. It and the machine are left untouched.
    #[error("{0}; put back by hand what it names, then remove it")]
    Malformed(LineError),
    /// The lease could not be recorded, so the change was not made.
    #[error("cannot record a lease in {}: {source}; nothing was changed", path.display())]
    Record {
        /// The lease file.
        path: PathBuf,
        /// What the kernel answered.
        r#source: std::io::Error,
    },
    /// Somebody else changed the target meanwhile; it is theirs now.
    #[error("{target} is {found} now, changed by somebody else: left as it is")]
    Theirs {
        /// What was to be changed.
        target: Target,
        /// Its present value.
        found: Value,
    },
    /// The change itself failed.
    #[error(transparent)]
    Lever(#[from] LeverError),
}

impl From<LineError> for LeaseError {
    fn from(error: LineError) -> Self {
        Self::Malformed(error)
    }
}

impl LeaseError {
    /// Whether the target no longer exists: its change went with it.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Lever(error) if error.is_gone())
    }
}

/// What became of one lease when it was undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    /// The old value is back.
    Restored,
    /// The old value was there already: the change had not been made yet, or was undone by its owner.
    Unchanged,
    /// Somebody else has changed it meanwhile; their value stays.
    Theirs,
    /// The file, CPU or thread is gone, and the change with it.
    Gone,
    /// It could not be put back.
    Failed,
}

/// The report on one lease.
#[derive(Debug)]
pub struct Outcome {
    /// What was changed.
    pub target: Target,
    /// What became of it.
    pub undone: Undone,
    /// A sentence for people: the values, or the error.
    pub detail: String,
}

#[derive(Debug, Clone)]
struct Lease {
    old: Value,
    /// Every value that we wrote or were about to write.
    ours: Vec<Value>,
    /// Position in the order of first changes.
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
    /// Becomes the holder. Leases that a dead holder left are undone first; their outcomes come along.
    ///
    /// # Errors
    /// Another holder lives, root's Gleaner controls the machine, or the old lease file cannot be understood.
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

    /// The root that changes go to.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Whether this process may still control the machine, see [`StateDir::check_right`].
    ///
    /// # Errors
    /// Root's Gleaner does.
    pub fn check_right(&self) -> Result<(), LeaseError> {
        Ok(self.state.check_right()?)
    }

    /// Makes the change, recorded first. A change to the value that is there already is skipped.
    ///
    /// # Errors
    /// The lease could not be recorded or somebody else changed the target (then nothing was changed), or the
    /// change failed.
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

    /// Takes the lease of a target that has `now` because of an earlier change of ours: a thread inherits what its
    /// parent was given, but must get `original` back.
    ///
    /// # Errors
    /// The lease could not be recorded.
    pub fn inherit(&mut self, inherited: &Inherited) -> Result<(), LeaseError> {
        self.lease(&inherited.target, &inherited.original, &inherited.now)
    }

    /// Puts the old value back for now and keeps the lease, so that changing it again needs no new record.
    ///
    /// # Errors
    /// As [`LeaseBook::set`].
    pub fn rest(&mut self, target: &Target) -> Result<(), LeaseError> {
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
        // The old value needs no record of its own: finding it again is "unchanged".
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

    /// Puts one target back and closes its lease. `None` if it was not leased.
    pub fn release(&mut self, target: &Target) -> Option<Outcome> {
        let lease = self.leases.remove(target)?;
        let outcome = undo(&self.root, target, &lease);
        if outcome.undone != Undone::Failed {
            // A missing record only means that `restore` looks once more and finds it unchanged.
            let _ = self.record(&LeaseRecord::Released { target: target.clone() });
        }
        Some(outcome)
    }

    /// Puts everything back, the latest first, and closes the book.
    pub fn close(mut self) -> Vec<Outcome> {
        let outcomes = undo_all(&self.root, std::mem::take(&mut self.leases));
        if outcomes.iter().all(|o| o.undone != Undone::Failed) {
            // What cannot be removed now holds only leases that are undone: the next holder finds nothing to do.
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
/// A holder lives ([`StateError::Busy`]), or the lease file cannot be understood; nothing is touched then.
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
    if outcomes.iter().all(|o| o.undone != Undone::Failed) {
        std::fs::remove_file(&path).map_err(|source| StateError::Io { path, source })?;
    }
    Ok(outcomes)
}

fn undo_all(root: &Root, leases: BTreeMap<Target, Lease>) -> Vec<Outcome> {
    let mut leases: Vec<_> = leases.into_iter().collect();
    // Groups that we made go first. What was set in one goes with it, where the kernel would not put it back while
    // processes are there; and it keeps nobody from having the controllers back that were handed to it.
    leases.sort_by_key(|(target, lease)| {
        (!matches!(target, Target::Group { .. }), std::cmp::Reverse(lease.order))
    });
    leases.iter().map(|(target, lease)| undo(root, target, lease)).collect()
}

fn undo(root: &Root, target: &Target, lease: &Lease) -> Outcome {
    let failed = |error: &LeverError| {
        let undone = if error.is_gone() { Undone::Gone } else { Undone::Failed };
        (undone, error.to_string())
    };
    let (undone, detail) = match target.read(root) {
        Err(error) => failed(&error),
        Ok(found) if found == lease.old => (Undone::Unchanged, format!("{target} is {found}, as before")),
        Ok(found) if !lease.ours.contains(&found) => {
            (Undone::Theirs, format!("{target} is {found}, changed by somebody else: left as it is"))
        }
        Ok(found) => match target.write(root, &lease.old) {
            Ok(()) => (Undone::Restored, put_back(root, target, &found, &lease.old)),
            Err(error) => failed(&error),
        },
    };
    Outcome { target: target.clone(), undone, detail }
}

fn put_back(root: &Root, target: &Target, found: &Value, old: &Value) -> String {
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
