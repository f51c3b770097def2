//! How the active set of a workload is changed.

use std::collections::BTreeSet;

use gleaner_kernel::cgroup::WorkloadGroup;
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::lever::{ThreadKey, ThreadPlan, cpuset, walk};
use gleaner_kernel::workload::WorkloadSensor;
use gleaner_policy::CpuSet;

use super::LiveError;
use super::chosen::{check_below, check_group};
use super::holdings::Holdings;
use super::unit_set::UnitSet;
use crate::lease::{LeaseBook, LeaseError};

/// Most threads whose own affinity or policy is reported to the user.
const MOST_REPORTED: usize = 1000;

/// How the active set of the workload is controlled.
#[derive(Debug)]
pub enum ActiveSetLever {
    /// By the CPU set of its own group.
    Group(WorkloadGroup),
    /// By the property of its unit.
    Unit(UnitSet),
    /// Thread by thread.
    Threads(Affinity),
    /// Each part of the workload by its own lever; the sensor lists the part's threads.
    Several(Vec<(Self, WorkloadSensor)>),
    /// Not at all: somebody else chose it.
    Untouched,
}

impl ActiveSetLever {
    /// The most threads that can be moved at once: a group costs a single write, threads are moved one by one.
    pub fn most_threads(&self) -> u32 {
        match self {
            Self::Group(_) | Self::Unit(_) | Self::Untouched => u32::MAX,
            Self::Threads(_) => 200,
            Self::Several(parts) => {
                parts.iter().map(|(lever, _)| lever.most_threads()).min().unwrap_or(u32::MAX)
            }
        }
    }

    /// Whether nobody else has changed what is held; `active` of `allowed` vCPUs are in use.
    ///
    /// # Errors
    /// Somebody has.
    pub(super) fn check(
        &mut self,
        book: &mut LeaseBook,
        holdings: &mut Holdings,
        active: &CpuSet,
        allowed: &CpuSet,
    ) -> Result<(), LeaseError> {
        match self {
            Self::Unit(unit) => unit.check(book, holdings, active),
            Self::Group(group) if active != allowed => check_below(book.root(), group.cpuset_dir(), allowed),
            Self::Several(parts) => {
                parts.iter_mut().try_for_each(|(lever, _)| lever.check(book, holdings, active, allowed))
            }
            Self::Group(_) | Self::Threads(_) | Self::Untouched => Ok(()),
        }
    }

    /// See [`ActiveSet::end`](super::active_set::ActiveSet::end).
    pub(super) fn end(&mut self, book: &mut LeaseBook) {
        self.units().into_iter().for_each(|unit| unit.end(book));
    }

    /// As if the set had been in force for long.
    #[cfg(test)]
    pub(super) fn settle(&mut self) {
        self.units().into_iter().for_each(UnitSet::settle);
    }

    /// The parts of the workload, if it has several.
    pub(super) fn parts(&mut self) -> &mut [(Self, WorkloadSensor)] {
        match self {
            Self::Several(parts) => parts,
            Self::Group(_) | Self::Unit(_) | Self::Threads(_) | Self::Untouched => &mut [],
        }
    }

    fn units(&mut self) -> Vec<&mut UnitSet> {
        match self {
            Self::Unit(unit) => vec![unit],
            Self::Several(parts) => parts.iter_mut().flat_map(|(lever, _)| lever.units()).collect(),
            Self::Group(_) | Self::Threads(_) | Self::Untouched => Vec::new(),
        }
    }
}

/// A change of the active set to `vcpus`.
pub(super) struct Change<'c> {
    pub(super) book: &'c mut LeaseBook,
    pub(super) holdings: &'c mut Holdings,
    pub(super) respected: &'c mut BTreeSet<ThreadKey>,
    pub(super) notes: &'c mut Vec<String>,
    pub(super) allowed: &'c CpuSet,
    pub(super) vcpus: &'c CpuSet,
    /// Whether only what is moved thread by thread is changed.
    pub(super) only_threads: bool,
}

impl Change<'_> {
    /// `threads` lists those that the lever is for.
    pub(super) fn put(
        &mut self,
        lever: &mut ActiveSetLever,
        threads: &mut dyn FnMut() -> Result<Vec<u32>, LiveError>,
    ) -> Result<(), LiveError> {
        let Self { book, holdings, respected, notes, allowed, vcpus, only_threads } = self;
        match lever {
            ActiveSetLever::Group(_) | ActiveSetLever::Unit(_) if *only_threads => {}
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
            ActiveSetLever::Several(parts) => {
                let mut done = Ok(());
                for (lever, members) in parts {
                    // The others are not kept waiting by one that fails.
                    done = done.and(self.put(lever, &mut || Ok(members.threads()?)));
                }
                return done;
            }
        }
        Ok(())
    }
}

/// Carries out a plan for threads.
pub(super) fn carry_out(
    holdings: &mut Holdings,
    book: &mut LeaseBook,
    plan: &ThreadPlan,
) -> Result<(), LiveError> {
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

/// Notes whose own choice is kept, once for each.
pub(super) fn note_respected(
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
