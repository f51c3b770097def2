//! A workload's set of active vCPUs, and its scheduling policy beside yield threads: each change under a lease.

use std::collections::BTreeSet;

use gleaner_kernel::Root;
use gleaner_kernel::lever::sched_policy::Batch;
use gleaner_kernel::lever::{Target, ThreadKey, walk};
use gleaner_kernel::workload::WorkloadSensor;
use gleaner_policy::CpuSet;

use super::LiveError;
use super::holdings::Holdings;
use super::set_lever::{ActiveSetLever, Change, carry_out, note_respected};
use crate::lease::{LeaseBook, LeaseError, Outcome};

/// The levers of one workload.
#[derive(Debug)]
pub(super) struct ActiveSet {
    lever: ActiveSetLever,
    /// Somebody else has changed the set: it is theirs.
    given_up: bool,
    allowed: CpuSet,
    active: CpuSet,
    batch: Batch,
    in_batch: bool,
    holdings: Holdings,
    /// Threads whose own affinity or policy was kept, so that each is reported only once.
    respected: BTreeSet<ThreadKey>,
}

impl ActiveSet {
    /// Nothing is changed yet: all vCPUs of `allowed` are active.
    pub(super) fn new(lever: ActiveSetLever, allowed: CpuSet) -> Self {
        Self {
            lever,
            given_up: false,
            active: allowed.clone(),
            allowed,
            batch: Batch::new(),
            in_batch: false,
            holdings: Holdings::default(),
            respected: BTreeSet::new(),
        }
    }

    /// The vCPUs that the workload is allowed to use.
    pub(super) fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// The active vCPUs.
    pub(super) fn active(&self) -> &CpuSet {
        &self.active
    }

    /// See [`ActiveSetLever::most_threads`].
    pub(super) fn most_threads(&self) -> usize {
        self.lever.most_threads() as usize
    }

    /// The parts of the workload, if it has several.
    pub(super) fn parts(&mut self) -> impl Iterator<Item = &mut WorkloadSensor> {
        self.lever.parts().iter_mut().map(|(_, members)| members)
    }

    /// Makes exactly `active` the active vCPUs. `threads` lists the workload's threads; `notes` gets sentences for the
    /// journal.
    pub(super) fn set(
        &mut self,
        book: &mut LeaseBook,
        active: &CpuSet,
        threads: &mut impl FnMut() -> Result<Vec<u32>, LiveError>,
        notes: &mut Vec<String>,
    ) -> Result<(), LiveError> {
        if !self.given_up {
            self.put(book, active, threads, notes)?;
            self.active.clone_from(active);
        }
        Ok(())
    }

    /// Moves the workload to `vcpus` for a moment; [`ActiveSet::reoccupy`] ends it.
    pub(super) fn move_to(
        &mut self,
        book: &mut LeaseBook,
        vcpus: &CpuSet,
        threads: &mut impl FnMut() -> Result<Vec<u32>, LiveError>,
    ) -> Result<(), LiveError> {
        self.put(book, vcpus, threads, &mut Vec::new())
    }

    /// Moves the workload back to its active vCPUs.
    pub(super) fn reoccupy(
        &mut self,
        book: &mut LeaseBook,
        threads: &mut impl FnMut() -> Result<Vec<u32>, LiveError>,
    ) -> Result<(), LiveError> {
        let active = self.active.clone();
        self.put(book, &active, threads, &mut Vec::new())
    }

    fn put(
        &mut self,
        book: &mut LeaseBook,
        vcpus: &CpuSet,
        threads: &mut impl FnMut() -> Result<Vec<u32>, LiveError>,
        notes: &mut Vec<String>,
    ) -> Result<(), LiveError> {
        if self.given_up {
            return Ok(());
        }
        let Self { lever, holdings, respected, allowed, .. } = self;
        Change { book, holdings, respected, notes, allowed, vcpus, only_threads: false }.put(lever, threads)
    }

    /// Puts the workload's threads into `SCHED_BATCH`, new ones with each call, or back.
    pub(super) fn set_batch(
        &mut self,
        book: &mut LeaseBook,
        on: bool,
        threads: &mut impl FnMut() -> Result<Vec<u32>, LiveError>,
        notes: &mut Vec<String>,
    ) -> Result<(), LiveError> {
        let Self { batch, holdings, respected, .. } = self;
        if on {
            let root: Root = book.root().clone();
            self.in_batch = true;
            walk(&root, threads, |new| {
                let plan = batch.plan(&root, new)?;
                carry_out(holdings, book, &plan)?;
                note_respected(&plan, respected, "its own scheduling policy", notes);
                Ok::<_, LiveError>(())
            })?;
        } else if std::mem::take(&mut self.in_batch) {
            holdings.release(book, |target| matches!(target, Target::Scheduling(_)));
        }
        Ok(())
    }

    /// Whether nobody else has changed what is held.
    ///
    /// # Errors
    /// Somebody has.
    pub(super) fn check(&mut self, book: &mut LeaseBook) -> Result<(), LeaseError> {
        let Self { lever, holdings, active, allowed, .. } = self;
        lever.check(book, holdings, active, allowed)?;
        holdings.check(book)
    }

    /// Moves what is moved thread by thread back to all allowed vCPUs: a thread that has started on a smaller set has no lease
    /// yet, and closing those of the others would leave it there. In a workload that has ended there is none.
    pub(super) fn free_new_threads(
        &mut self,
        book: &mut LeaseBook,
        threads: &mut dyn FnMut() -> Result<Vec<u32>, LiveError>,
    ) {
        if self.given_up || self.active == self.allowed {
            return;
        }
        let Self { lever, holdings, respected, allowed, .. } = self;
        let (vcpus, notes) = (&*allowed, &mut Vec::new());
        let mut change = Change { book, holdings, respected, notes, allowed, vcpus, only_threads: true };
        let _ = change.put(lever, threads);
    }

    /// Restores everything that is still ours, and closes the leases; all allowed vCPUs are active.
    pub(super) fn release(&mut self, book: &mut LeaseBook) -> Vec<Outcome> {
        self.active.clone_from(&self.allowed);
        self.in_batch = false;
        self.end(book);
        self.holdings.release(book, |_| true)
    }

    /// Call it before leases are closed otherwise than by [`ActiveSet::release`].
    pub(super) fn end(&mut self, book: &mut LeaseBook) {
        self.lever.end(book);
    }

    /// From now on the set is somebody else's, or not any more.
    pub(super) fn set_given_up(&mut self, given_up: bool) {
        self.given_up = given_up;
    }

    /// Whether the set is its owner's own.
    pub(super) fn is_untouched(&self) -> bool {
        matches!(self.lever, ActiveSetLever::Untouched)
    }

    /// As if the set had been in force for long.
    #[cfg(test)]
    pub(super) fn settle(&mut self) {
        self.lever.settle();
    }
}
