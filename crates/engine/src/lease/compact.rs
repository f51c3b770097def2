//! Keeps the lease file short: a holder that lasts for weeks leases threads that have long ended, and limits that it tried
//! long ago.

use std::fs::{self, File};
use std::io::Write as _;

use gleaner_kernel::lever::{Target, Value};
use gleaner_proto::lease::LeaseRecord;

use super::{Lease, LeaseBook, first_record, line};
use crate::state::StateError;

/// A file shorter than this, in bytes, is left as it is.
const SHORT: usize = 64 << 10;

/// The length of the lease file in bytes, and the one at which it is written anew.
#[derive(Debug)]
pub(super) struct Length {
    now: usize,
    limit: usize,
}

impl Default for Length {
    fn default() -> Self {
        Self { now: 0, limit: SHORT }
    }
}

impl Length {
    pub(super) fn add(&mut self, bytes: usize) {
        self.now += bytes;
    }
}

impl Lease {
    /// The values that undoing must know.
    fn to_record(&self, target: &Target) -> Vec<Value> {
        match &self.held {
            Some(held) if !target.is_of_thread() => vec![held.clone()],
            _ => self.ours.clone(),
        }
    }
}

impl LeaseBook {
    /// Writes the file anew, if it has become long, without the leases of threads that have ended and without values
    /// that are in force no more. It is replaced as a whole: at every moment there is one that undoes everything.
    pub(super) fn compact_if_long(&mut self) {
        if self.length.now < self.length.limit {
            return;
        }
        let root = &self.root;
        self.leases.retain(|target, _| {
            !(target.is_of_thread() && target.read(root).is_err_and(|error| error.is_gone()))
        });
        // If it fails (a full disk), the long file stays, which is as good.
        let length = self.replace_file().unwrap_or(self.length.now);
        self.length = Length { now: length, limit: SHORT.max(length.saturating_mul(2)) };
    }

    fn replace_file(&mut self) -> Result<usize, StateError> {
        let io = |source| StateError::Io { path: self.path.clone(), source };
        let mut text = line(&first_record())?;
        let mut leases: Vec<_> = self.leases.iter().collect();
        leases.sort_by_key(|(_, lease)| lease.order);
        for (target, lease) in leases {
            for new in lease.to_record(target) {
                let change =
                    LeaseRecord::Change { target: target.clone(), old: lease.old.clone(), new: new.clone() };
                text.extend(line(&change)?);
            }
        }
        let new = self.path.with_extension("new");
        let mut file = File::create(&new).map_err(io)?;
        file.write_all(&text).and_then(|()| fs::rename(&new, &self.path)).map_err(io)?;
        self.file = file;
        for (target, lease) in &mut self.leases {
            lease.ours = lease.to_record(target);
        }
        Ok(text.len())
    }
}
