//! A workload's set of active vCPUs, and its scheduling policy beside yield threads: each change under a lease.

use std::collections::BTreeSet;

use gleaner_kernel::Root;
use gleaner_kernel::cgroup::WorkloadGroup;
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::lever::sched_policy::Batch;
use gleaner_kernel::lever::{Target, ThreadKey, ThreadPlan, cpuset, walk};
use gleaner_policy::CpuSet;

use super::LiveError;
use super::chosen::{check_below, check_group};
use super::holdings::Holdings;
use super::unit_set::UnitSet;
use crate::lease::{LeaseBook, LeaseError, Outcome};

/// How the active set of the workload is controlled.
#[derive(Debug)]
pub enum ActiveSetLever {
    /// By the CPU set of its own group.
    Group(WorkloadGroup),
    /// By the property of its unit.
    Unit(UnitSet),
    /// Thread by thread.
    Threads(Affinity),
    /// Not at all: somebody else chose it.
    Untouched,
}

impl ActiveSetLever {
    /// The most threads that can be moved at once: a group costs a single write, threads are moved one by one.
    pub fn most_threads(&self) -> u32 {
        match self {
            Self::Group(_) | Self::Unit(_) | Self::Untouched => u32::MAX,
            Self::Threads(_) => 200,
        }
    }
}

/// Most threads whose own affinity or policy is reported to the user.
const MOST_REPORTED: usize = 1000;

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
        let Self { lever, holdings, respected, allowed, .. } = self;
        if self.given_up {
            return Ok(());
        }
        match lever {
            ActiveSetLever::Group(group) => {
                // The full set is written out as well: version 2 refuses an empty one while the group has
                // processes.
                let writes = cpuset::writes(group, vcpus);
                if !holdings.holds_any(book, &writes) {
                    check_group(book.root(), group.cpuset_dir(), allowed)?;
                }
                for write in writes {
                    holdings.set(book, &write)?;
                }
            }
            ActiveSetLever::Unit(unit) => unit.put(book, holdings, vcpus)?,
            ActiveSetLever::Untouched => {}
            ActiveSetLever::Threads(affinity) => {
                affinity.set_active(vcpus);
                let root = book.root().clone();
                walk(&root, threads, |new| {
                    let plan = affinity.plan(&root, new)?;
                    carry_out(holdings, book, &plan)?;
                    note_respected(&plan, respected, "its own CPU affinity", notes);
                    Ok::<_, LiveError>(())
                })?;
            }
        }
        Ok(())
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
        match lever {
            ActiveSetLever::Unit(unit) => unit.check(book, holdings, active)?,
            ActiveSetLever::Group(group) if active != allowed => {
                check_below(book.root(), group.cpuset_dir(), allowed)?;
            }
            _ => {}
        }
        holdings.check(book)
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
        if let ActiveSetLever::Unit(unit) = &mut self.lever {
            unit.end(book);
        }
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
        if let ActiveSetLever::Unit(unit) = &mut self.lever {
            unit.settle();
        }
    }
}

fn carry_out(holdings: &mut Holdings, book: &mut LeaseBook, plan: &ThreadPlan) -> Result<(), LiveError> {
    for inherited in &plan.inherited {
        holdings.inherit(book, inherited)?;
    }
    for write in &plan.writes {
        match holdings.set(book, write) {
            // It has ended, or chosen a value of its own, since the plan was made.
            Err(error) if error.is_gone() || matches!(error, LeaseError::Theirs { .. }) => {}
            other => other?,
        }
    }
    Ok(())
}

fn note_respected(
    plan: &ThreadPlan,
    respected: &mut BTreeSet<ThreadKey>,
    what: &str,
    notes: &mut Vec<String>,
) {
    for key in &plan.respected {
        if respected.len() < MOST_REPORTED && respected.insert(*key) {
            notes.push(format!("thread {} chose {what}, which is respected", key.tid));
        }
    }
}
