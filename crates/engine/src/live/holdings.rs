//! The leases that belong together: those of one workload's set, or those of the machine's retention.

use std::collections::BTreeSet;

use gleaner_kernel::lever::{Inherited, Target, Value, Write};

use crate::lease::{LeaseBook, LeaseError, Outcome};

/// Below this number of targets nothing is removed from the list.
const FEW: usize = 64;

/// What was leased in one book by one holder among several.
#[derive(Debug, Default)]
pub(super) struct Holdings(BTreeSet<Target>);

impl Holdings {
    /// See [`LeaseBook::set`].
    pub(super) fn set(&mut self, book: &mut LeaseBook, write: &Write) -> Result<(), LeaseError> {
        let done = book.set(write);
        self.note(book, &write.target);
        done
    }

    /// See [`LeaseBook::inherit`].
    pub(super) fn inherit(&mut self, book: &mut LeaseBook, inherited: &Inherited) -> Result<(), LeaseError> {
        let done = book.inherit(inherited);
        self.note(book, &inherited.target);
        done
    }

    /// See [`LeaseBook::expect`].
    pub(super) fn expect(
        &mut self,
        book: &mut LeaseBook,
        target: &Target,
        original: &Value,
        now: &Value,
    ) -> Result<(), LeaseError> {
        let done = book.expect(target, original, now);
        self.note(book, target);
        done
    }

    /// Whether one of the targets is leased.
    pub(super) fn holds_any(&self, book: &LeaseBook, writes: &[Write]) -> bool {
        writes.iter().any(|write| self.0.contains(&write.target) && book.holds(&write.target))
    }

    /// Whether everything that belongs to the machine still has the value that was written last. Threads are not
    /// asked: there can be many, and what one sets for itself ends nothing. Nor is systemd: the files that follow from
    /// its properties show when one was changed.
    ///
    /// # Errors
    /// See [`LeaseBook::check`]. A target that is gone is nobody else's.
    pub(super) fn check(&self, book: &LeaseBook) -> Result<(), LeaseError> {
        let asked = |target: &&Target| !target.is_of_thread() && !matches!(target, Target::UnitCpus { .. });
        for target in self.0.iter().filter(asked) {
            match book.check(target) {
                Err(error) if error.is_gone() => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Restores and closes the leases that `which` selects, the latest first.
    pub(super) fn release(&mut self, book: &mut LeaseBook, which: impl Fn(&Target) -> bool) -> Vec<Outcome> {
        let (closed, kept) = std::mem::take(&mut self.0).into_iter().partition(which);
        self.0 = kept;
        book.release_all(&closed)
    }

    fn note(&mut self, book: &LeaseBook, target: &Target) {
        if !book.holds(target) || !self.0.insert(target.clone()) {
            return;
        }
        // The book drops threads that have ended.
        if self.0.len() > FEW.max(2 * book.len()) {
            self.0.retain(|target| book.holds(target));
        }
    }
}
