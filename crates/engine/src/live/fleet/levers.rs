//! The levers of a fleet: the sets of its workloads, and the machine's retention.

use std::time::Duration;

use gleaner_kernel::lever::affinity::Affinity;
use gleaner_policy::{CpuSet, Method, Retention, WorkloadId};

use super::{CHECK_INTERVAL, Fleet, FleetError, Member};
use crate::lease::{LeaseBook, Outcome};
use crate::live::LiveError;
use crate::live::retention::polls;

/// Nothing has been retained for this long: then it is no trial's baseline, and what retention changed is put back.
const IDLE_AFTER: Duration = Duration::from_secs(5);

impl Fleet {
    /// Puts a workload's set of active vCPUs in force. Does nothing if it has ended meanwhile.
    ///
    /// # Errors
    /// A lever failed, or somebody else changed the set; or what retains, which is adjusted to the set.
    pub fn place(&mut self, id: WorkloadId, active: &CpuSet) -> Result<(), FleetError> {
        self.set_active(id, active)?;
        self.retain_again()
    }

    /// As [`Fleet::place`], for a caller that sets the retention next.
    pub(in crate::live) fn set_active(&mut self, id: WorkloadId, active: &CpuSet) -> Result<(), FleetError> {
        let Some(member) = self.members.get_mut(&id).filter(|member| member.active() != active) else {
            return Ok(());
        };
        let placed = member.place(&mut self.book, active);
        let placed = placed.map_err(|error| FleetError::of_member(id, error, member.has_ended()));
        self.step_aside();
        unless_ended(placed)
    }

    /// Puts a retention in force on all vCPUs that a workload uses. One that is in force already is adjusted: to new
    /// threads, if the method needs that.
    ///
    /// # Errors
    /// A lever failed, or somebody else changed what retains.
    pub fn retain(&mut self, retention: Retention) -> Result<(), FleetError> {
        let Self { book, sensors, retainer, settling, members, .. } = self;
        let used = union(members.values().map(Member::active));
        let some_inactive = used != union(members.values().map(Member::allowed));
        let before = retainer.in_force();
        retainer.set(book, retention, &used, some_inactive).map_err(FleetError::of_retention)?;
        if polls(retention.method) {
            settling.poll(retention);
        } else if polls(before.method) {
            settling.start(sensors, &used).map_err(FleetError::Machine)?;
        }
        self.off_since =
            if retention.is_on() { None } else { self.off_since.or_else(|| Some(sensors.now())) };
        let batch = retention.method == Method::YieldIpiFree;
        self.for_each_member(|member, book| member.set_batch(book, batch))
    }

    /// Stops vCPUs from polling by an earlier limit, see [`gleaner_policy::Decision::reset_poll_limits`]. Takes up to
    /// some milliseconds.
    ///
    /// A vCPU with nothing to run halts once its poll limit has passed, and that resets the limit: so each half of the
    /// vCPUs that are used is vacated in turn until all of it has halted. Other programs, and a workload that is allowed
    /// to be nowhere else, can keep a vCPU from halting; the wait is bounded, and the next observation reports such a
    /// vCPU as not settled.
    ///
    /// # Errors
    /// A lever failed, or somebody else changed a set. All workloads are back on their sets nevertheless.
    pub fn reset_poll_limits(&mut self) -> Result<(), FleetError> {
        let used = self.used();
        if used.len() < 2 || self.settling.is_over() || !self.all_are_movable()? {
            return Ok(());
        }
        let low: CpuSet = used.iter().take(used.len() / 2).collect();
        let mut done = Ok(());
        for half in [used.difference(&low), low] {
            // The engine's own wake-ups would keep an idle vCPU from halting.
            let _ = Affinity::set_caller(&used.difference(&half));
            let vacated = self.for_each_member(|member, book| member.vacate(book, &half, &used));
            let waited = self.settling.wait(&mut self.sensors, &half).map_err(FleetError::Machine);
            done = done.and(vacated).and(waited);
            if done.is_err() {
                break;
            }
        }
        done = done.and(self.for_each_member(Member::reoccupy));
        self.step_aside();
        done
    }

    /// Gives up a workload's set, which somebody else has changed: its leases are closed without writing over the
    /// other's value. All allowed vCPUs count as active, and none of its threads is moved before [`Fleet::take_up_set`].
    pub fn abandon_set(&mut self, id: WorkloadId) -> Vec<Outcome> {
        let Some(member) = self.members.get_mut(&id) else { return Vec::new() };
        let outcomes = member.release(&mut self.book);
        member.set_given_up(true);
        self.adjust();
        outcomes
    }

    /// Controls a workload's set again that was given up.
    pub fn take_up_set(&mut self, id: WorkloadId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.set_given_up(false);
        }
    }

    /// Ends the retention, which somebody else has changed: what is still ours is put back, the other's value stays.
    pub fn abandon_retention(&mut self) -> Vec<Outcome> {
        // Only for what the other does not own: a failure to start settling says that nothing has to.
        let before = self.retainer.in_force();
        let outcomes = self.retainer.release(&mut self.book);
        if polls(before.method) {
            let used = self.used();
            let _ = self.settling.start(&mut self.sensors, &used);
        }
        self.off_since = Some(self.now());
        let _ = self.for_each_member(|member, book| member.set_batch(book, false));
        outcomes
    }

    /// Restores everything.
    pub fn close(mut self) -> Vec<Outcome> {
        self.retainer.stop_yield_threads();
        for member in self.members.values_mut() {
            member.end(&mut self.book);
        }
        self.book.close()
    }

    /// From time to time, compares what is held with what was written, and puts back what serves nothing.
    pub(super) fn check_held(&mut self) -> Result<(), FleetError> {
        let now = self.now();
        if now.saturating_sub(self.held_checked) < CHECK_INTERVAL {
            return Ok(());
        }
        self.held_checked = now;
        let Self { members, book, .. } = self;
        for (&id, member) in members {
            member.check(book).map_err(|error| FleetError::of_member(id, error.into(), true))?;
        }
        self.retainer.check(&self.book).map_err(|error| FleetError::of_retention(error.into()))?;
        if self.off_since.is_some_and(|since| now.saturating_sub(since) >= IDLE_AFTER)
            && self.settling.is_over()
        {
            // What cannot be put back stays in the book.
            self.retainer.release(&mut self.book);
        }
        Ok(())
    }

    /// The vCPUs that are active for at least one workload.
    fn used(&self) -> CpuSet {
        union(self.members.values().map(Member::active))
    }

    /// Adjusts what depends on all sets to a change of one. What fails is found by the next check of what is held, or by
    /// the next change.
    pub(super) fn adjust(&mut self) {
        self.step_aside();
        let _ = self.retain_again();
    }

    fn retain_again(&mut self) -> Result<(), FleetError> {
        let retention = self.retainer.in_force();
        if retention.is_on() { self.retain(retention) } else { Ok(()) }
    }

    /// Moves the engine's own wake-ups away from consolidated workloads.
    fn step_aside(&self) {
        let Some(own) = &self.own_affinity else { return };
        let consolidated = self.members.values().filter(|member| member.is_consolidated());
        let aside = own.difference(&union(consolidated.map(Member::active)));
        // Best effort: if refused, the engine runs among the workload.
        let _ = Affinity::set_caller(if aside.is_empty() { own } else { &aside });
    }

    fn all_are_movable(&mut self) -> Result<bool, FleetError> {
        let mut movable = true;
        self.for_each_member(|member, _| {
            movable &= member.is_movable()?;
            Ok(())
        })?;
        Ok(movable)
    }

    /// Calls `change` for every workload, also after an error; returns the first. Those that have ended make none.
    fn for_each_member(
        &mut self,
        mut change: impl FnMut(&mut Member, &mut LeaseBook) -> Result<(), LiveError>,
    ) -> Result<(), FleetError> {
        let Self { members, book, .. } = self;
        let mut done = Ok(());
        for (&id, member) in members {
            let changed = change(member, book);
            let changed = changed.map_err(|error| FleetError::of_member(id, error, member.has_ended()));
            done = done.and(unless_ended(changed));
        }
        done
    }
}

fn unless_ended(done: Result<(), FleetError>) -> Result<(), FleetError> {
    match done {
        Err(FleetError::Ended { .. }) => Ok(()),
        other => other,
    }
}

fn union<'s>(sets: impl Iterator<Item = &'s CpuSet>) -> CpuSet {
    sets.flat_map(CpuSet::iter).collect()
}
