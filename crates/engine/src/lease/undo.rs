//! Undoing: compares first, and leaves alone what somebody else has changed.

use std::collections::BTreeMap;

use gleaner_kernel::Root;
use gleaner_kernel::lever::{LeverError, Target, Value};
use gleaner_proto::lease::{self, LeaseRecord};

use super::{Lease, LeaseError, Outcome, UndoResult};
use crate::state::{StateDir, StateError};

/// Undoes what a dead holder left, for `gleaner restore`.
///
/// # Errors
/// The holder lives ([`StateError::Busy`]), or the lease file is malformed; nothing is changed then.
pub fn restore(state: &StateDir, root: &Root) -> Result<Vec<Outcome>, LeaseError> {
    let _holder = state.lock()?;
    undo_file(state, root)
}

pub(super) fn undo_file(state: &StateDir, root: &Root) -> Result<Vec<Outcome>, LeaseError> {
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
                let new_lease = Lease { old, ours: Vec::new(), held: None, order };
                leases.entry(target).or_insert(new_lease).ours.push(new);
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

pub(super) fn undo_all(root: &Root, leases: BTreeMap<Target, Lease>) -> Vec<Outcome> {
    let mut leases: Vec<_> = leases.into_iter().collect();
    // Groups of ours go first. Their settings go with them, some of which the kernel would not restore while
    // processes are inside; and the controllers delegated to them become free to be restored.
    leases.sort_by_key(|(target, lease)| {
        (!matches!(target, Target::Group { .. }), std::cmp::Reverse(lease.order))
    });
    leases.iter().map(|(target, lease)| undo(root, target, lease)).collect()
}

pub(super) fn undo(root: &Root, target: &Target, lease: &Lease) -> Outcome {
    let failed = |error: &LeverError| {
        let undone = if error.is_gone() { UndoResult::Gone } else { UndoResult::Failed };
        (undone, error.to_string())
    };
    let (undone, mut detail) = match target.read(root) {
        Err(error) => failed(&error),
        Ok(found) if found == lease.old => (UndoResult::Unchanged, format!("{target} is {found}, as before")),
        Ok(found) if !lease.is_ours(target, &found) => {
            (UndoResult::Theirs, format!("{target} is {found}, changed by somebody else: left as it is"))
        }
        Ok(found) => match target.write(root, &lease.old) {
            Ok(()) => (UndoResult::Restored, restore_value(root, target, &found, &lease.old)),
            Err(error) => failed(&error),
        },
    };
    // Where nothing was written, what an earlier write left beside the target can still be there.
    if !matches!(undone, UndoResult::Restored | UndoResult::Failed) {
        let ours: Vec<Value> = lease.ours.iter().chain([&lease.old]).cloned().collect();
        if let Err(error) = target.forget(root, &ours) {
            detail = format!("{detail}; {error}");
        }
    }
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
