//! Puts a setting in force on this machine, each change under a lease.

use std::collections::BTreeSet;
use std::time::Duration;

use gleaner_kernel::cgroup::WorkloadGroup;
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::lever::sched_policy::Batch;
use gleaner_kernel::lever::yield_threads::{YieldKind, YieldThreads};
use gleaner_kernel::lever::{Target, ThreadKey, ThreadPlan, cpuset, haltpoll, pm_qos, walk};
use gleaner_policy::{CpuSet, Method, Retention, Setting};

use super::LiveError;
use crate::lease::{LeaseBook, Outcome};

/// How the active set of the workload is controlled.
#[derive(Debug)]
pub enum ActiveSetLever {
    /// By the CPU set of its own group.
    Group(WorkloadGroup),
    /// Thread by thread.
    Threads(Affinity),
}

/// The levers of one workload.
#[derive(Debug)]
pub(super) struct Levers {
    book: LeaseBook,
    place: ActiveSetLever,
    all: CpuSet,
    active: CpuSet,
    retention: Retention,
    /// Whether some vCPUs were inactive when haltpoll was last set.
    some_inactive: bool,
    yields: Option<(YieldKind, YieldThreads)>,
    batch: Batch,
    /// Threads whose own affinity or policy was kept, so that each is reported only once.
    respected: BTreeSet<ThreadKey>,
    /// The engine's own affinity, restored on a full set.
    own_affinity: Option<CpuSet>,
    /// When the right to control the machine was last checked.
    right_checked: Duration,
}

/// The longest time for which an unprivileged Gleaner can go on beside root's.
const RIGHT_CHECK_INTERVAL: Duration = Duration::from_millis(500);

impl ActiveSetLever {
    /// The most threads that can be moved at once: a group costs a single write, threads are moved one by one.
    pub fn most_threads(&self) -> u32 {
        match self {
            Self::Group(_) => u32::MAX,
            Self::Threads(_) => 200,
        }
    }
}

impl Levers {
    /// See [`ActiveSetLever::most_threads`].
    pub(super) fn most_threads(&self) -> usize {
        self.place.most_threads() as usize
    }

    pub(super) fn new(book: LeaseBook, place: ActiveSetLever, all: CpuSet) -> Self {
        Self {
            book,
            place,
            active: all.clone(),
            all,
            retention: Retention::NONE,
            some_inactive: false,
            yields: None,
            batch: Batch::new(),
            respected: BTreeSet::new(),
            own_affinity: Affinity::of_caller().ok(),
            right_checked: Duration::ZERO,
        }
    }

    /// Checks from time to time whether this process is still allowed to control the machine; `now` is of any
    /// clock.
    ///
    /// # Errors
    /// Root's Gleaner controls it.
    pub(super) fn check_right(&mut self, now: Duration) -> Result<(), LiveError> {
        if now.saturating_sub(self.right_checked) >= RIGHT_CHECK_INTERVAL {
            self.right_checked = now;
            self.book.check_right()?;
        }
        Ok(())
    }

    /// Puts `setting` in force; `threads` lists the workload's threads. Returns sentences for the journal.
    pub(super) fn apply(
        &mut self,
        setting: &Setting,
        mut threads: impl FnMut() -> Result<Vec<u32>, LiveError>,
    ) -> Result<Vec<String>, LiveError> {
        let mut notes = Vec::new();
        if setting.active != self.active {
            self.activate(&setting.active, &mut threads, &mut notes)?;
            self.active.clone_from(&setting.active);
            self.avoid_active_vcpus();
        }
        self.retain(setting, &mut threads, &mut notes)?;
        self.retention = setting.retention;
        Ok(notes)
    }

    /// Restores everything; returns the leases' outcomes.
    pub(super) fn close(mut self) -> Vec<Outcome> {
        self.yields = None;
        self.book.close()
    }

    /// The yield threads, with their statistics.
    pub(super) fn yield_threads(&self) -> Option<&YieldThreads> {
        self.yields.as_ref().map(|(_, threads)| threads)
    }

    fn activate(
        &mut self,
        active: &CpuSet,
        threads: &mut impl FnMut() -> Result<Vec<u32>, LiveError>,
        notes: &mut Vec<String>,
    ) -> Result<(), LiveError> {
        let Self { book, place, respected, .. } = self;
        match place {
            ActiveSetLever::Group(group) => {
                // The full set is written out as well: version 2 refuses an empty one while the group has
                // processes.
                for write in cpuset::writes(group, active) {
                    book.set(&write)?;
                }
            }
            ActiveSetLever::Threads(affinity) => {
                affinity.set_active(active);
                let root = book.root().clone();
                walk(&root, threads, |new| {
                    let plan = affinity.plan(&root, new)?;
                    carry_out(book, &plan)?;
                    note_respected(&plan, respected, "its own CPU affinity", notes);
                    Ok::<_, LiveError>(())
                })?;
            }
        }
        Ok(())
    }

    /// Moves the engine's own wake-ups away from the workload.
    fn avoid_active_vcpus(&self) {
        let Some(own) = &self.own_affinity else { return };
        let aside = own.difference(&self.active);
        let mask = if aside.is_empty() { own } else { &aside };
        // Best effort: if refused, the engine runs among the workload.
        let _ = Affinity::set_caller(mask);
    }

    fn retain(
        &mut self,
        setting: &Setting,
        threads: &mut impl FnMut() -> Result<Vec<u32>, LiveError>,
        notes: &mut Vec<String>,
    ) -> Result<(), LiveError> {
        let Retention { method, limit } = setting.retention;
        let some_inactive = setting.active != self.all;
        self.haltpoll(if method == Method::Haltpoll { limit } else { Duration::ZERO }, some_inactive)?;
        let none = CpuSet::new();
        self.qos_poll(if method == Method::QosPoll { &setting.active } else { &none })?;
        let kind = match method {
            Method::Yield => Some(YieldKind::Classic),
            Method::YieldIpiFree => Some(YieldKind::IpiFree),
            _ => None,
        };
        self.yield_threads_of(kind, limit, &setting.active)?;
        self.batch(kind == Some(YieldKind::IpiFree), threads, notes)
    }

    /// Sets the haltpoll limit, which is allowed to shrink while `some_inactive` vCPUs are inactive.
    fn haltpoll(&mut self, limit: Duration, some_inactive: bool) -> Result<(), LiveError> {
        let before =
            if self.retention.method == Method::Haltpoll { self.retention.limit } else { Duration::ZERO };
        if limit != before || (!limit.is_zero() && some_inactive != self.some_inactive) {
            let writes = haltpoll::writes(limit, before, some_inactive);
            // The parameters are writable even if no driver reads them. Those that are leased were checked
            // before.
            if !limit.is_zero() && !writes.iter().any(|write| self.book.holds(&write.target)) {
                haltpoll::available(self.book.root())?;
            }
            for write in writes {
                self.book.set(&write)?;
            }
        }
        self.some_inactive = some_inactive;
        Ok(())
    }

    fn qos_poll(&mut self, polling: &CpuSet) -> Result<(), LiveError> {
        if polling.is_empty() && self.retention.method != Method::QosPoll {
            return Ok(());
        }
        if !polling.is_empty() && self.retention.method != Method::QosPoll {
            pm_qos::available(self.book.root())?;
        }
        let (on, off) = pm_qos::writes(polling, &self.all);
        for write in on {
            self.book.set(&write)?;
        }
        for file in off {
            self.book.reset(&Target::File(file))?;
        }
        // The request leaves a poll limit behind, which only the governor's own parameters reset.
        if polling.is_empty() && haltpoll::available(self.book.root()).is_ok() {
            for write in haltpoll::reset() {
                self.book.set(&write)?;
            }
        }
        Ok(())
    }

    /// Moves the workload off the vCPUs of `idle` until [`Levers::reoccupy`].
    pub(super) fn vacate(
        &mut self,
        idle: &CpuSet,
        mut threads: impl FnMut() -> Result<Vec<u32>, LiveError>,
    ) -> Result<(), LiveError> {
        let busy = self.active.difference(idle);
        // The engine's own wake-ups would keep an idle vCPU from halting.
        let _ = Affinity::set_caller(&busy);
        self.activate(&busy, &mut threads, &mut Vec::new())
    }

    /// Ends [`Levers::vacate`].
    pub(super) fn reoccupy(
        &mut self,
        mut threads: impl FnMut() -> Result<Vec<u32>, LiveError>,
    ) -> Result<(), LiveError> {
        let active = self.active.clone();
        self.activate(&active, &mut threads, &mut Vec::new())?;
        self.avoid_active_vcpus();
        Ok(())
    }

    fn yield_threads_of(
        &mut self,
        kind: Option<YieldKind>,
        limit: Duration,
        active: &CpuSet,
    ) -> Result<(), LiveError> {
        if let Some(kind) = kind
            && self.yields.as_ref().is_none_or(|(running, _)| *running != kind)
        {
            self.yields = Some((kind, YieldThreads::start(&self.all, kind)?));
        }
        if let Some((_, threads)) = &self.yields {
            threads.set_active(active);
            threads.set_limit(if kind.is_some() { limit } else { Duration::ZERO });
        }
        Ok(())
    }

    fn batch(
        &mut self,
        on: bool,
        threads: &mut impl FnMut() -> Result<Vec<u32>, LiveError>,
        notes: &mut Vec<String>,
    ) -> Result<(), LiveError> {
        let Self { book, batch, respected, .. } = self;
        if on {
            let root = book.root().clone();
            walk(&root, threads, |new| {
                let plan = batch.plan(&root, new)?;
                carry_out(book, &plan)?;
                note_respected(&plan, respected, "its own scheduling policy", notes);
                Ok::<_, LiveError>(())
            })?;
        } else if self.retention.method == Method::YieldIpiFree {
            let changed: Vec<Target> =
                book.targets().filter(|t| matches!(t, Target::Scheduling(_))).cloned().collect();
            for target in changed {
                book.release(&target);
            }
        }
        Ok(())
    }
}

fn carry_out(book: &mut LeaseBook, plan: &ThreadPlan) -> Result<(), LiveError> {
    for inherited in &plan.inherited {
        book.inherit(inherited)?;
    }
    for write in &plan.writes {
        match book.set(write) {
            Err(error) if error.is_gone() => {}
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
        if respected.insert(*key) {
            notes.push(format!("thread {} chose {what}, which is respected", key.tid));
        }
    }
}
