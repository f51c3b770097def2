//! This machine, controlled for any number of workloads: one lease book, one retention, an active set for each.
//!
//! The retention acts on the whole machine, and so does what follows from it: which vCPUs still poll by an earlier
//! limit, and how they are made to stop. A workload has its sensors and its set of active vCPUs. Nothing here waits for
//! long: the driver polls [`Fleet::fds`] until [`Fleet::next_sample`], and then asks for [`Fleet::reported`].
//!
//! Errors say whom they concern. One of a workload leaves the others and the machine's retention in force; so does a
//! value that somebody else changed, after which that lever is given up by [`Fleet::abandon_set`] or
//! [`Fleet::abandon_retention`].

mod error;
mod levers;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::workload::WorkloadSensor;
use gleaner_policy::{CpuSet, Observation, Sense, Watch, WorkloadId};
use nix::sys::signal::SigSet;

use super::member::Member;
use super::retention::Retainer;
use super::settling::Settling;
use super::vcpus::VcpuSensors;
use super::{
    ActiveSetLever, Counter, LiveError, OverloadWatch, ProcessFd, Signals, TrafficSensor, WaitingSensor,
};
use crate::lease::{LeaseBook, Outcome};
pub use error::FleetError;

/// The components of one workload in a [`Fleet`].
#[derive(Debug)]
pub struct MemberParts {
    /// How the active set is controlled.
    pub place: ActiveSetLever,
    /// The workload's counters.
    pub workload: WorkloadSensor,
    /// The user's progress counter.
    pub counter: Option<Counter>,
    /// The vCPUs that the workload is allowed to use.
    pub allowed: CpuSet,
    /// The processes of which the first to end is the workload's end; without any, that is the end of its last process.
    pub heads: Vec<ProcessFd>,
    /// Reports overload of a smaller set, if available.
    pub overloads: Option<Box<dyn OverloadWatch>>,
    /// Measures how long the workload's threads wait after a wake-up, if available.
    pub waiting: Option<Box<dyn WaitingSensor>>,
    /// Counts the workload's socket traffic, if available.
    pub traffic: Option<Box<dyn TrafficSensor>>,
    /// The cost of waking a halted vCPU, to estimate what is not measured.
    pub wake_cost: Duration,
}

/// The longest time for which an unprivileged Gleaner can go on beside root's.
const RIGHT_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The longest time for which a value that somebody else changed goes unnoticed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// This machine, for any number of workloads.
#[derive(Debug)]
pub struct Fleet {
    book: LeaseBook,
    sensors: VcpuSensors,
    retainer: Retainer,
    settling: Settling,
    /// Since when nothing is retained.
    off_since: Option<Duration>,
    members: BTreeMap<WorkloadId, Member>,
    /// The engine's own affinity, in force while no workload is consolidated.
    own_affinity: Option<CpuSet>,
    /// The signal mask of counters' commands.
    mask: SigSet,
    warn: fn(&str),
    /// When the right to control the machine was last checked...
    right_checked: Duration,
    /// ...and when what is held was.
    held_checked: Duration,
}

impl Fleet {
    /// Starts to observe the machine, without changing anything. `vcpus` are those that can be retained. The commands
    /// of progress counters get the signal mask from before `signals`; `warn` prints a sentence for the user at once.
    ///
    /// # Errors
    /// A sensor that every workload needs is missing.
    pub fn new(book: LeaseBook, vcpus: CpuSet, signals: &Signals, warn: fn(&str)) -> Result<Self, LiveError> {
        Ok(Self {
            sensors: VcpuSensors::new(book.root())?,
            retainer: Retainer::new(vcpus),
            settling: Settling::default(),
            off_since: None,
            members: BTreeMap::new(),
            own_affinity: Affinity::of_caller().ok(),
            mask: signals.before(),
            warn,
            right_checked: Duration::ZERO,
            held_checked: Duration::ZERO,
            book,
        })
    }

    /// Starts to observe one more workload, without changing its set. Retention that is in force is adjusted to it. The
    /// `id` must be new.
    ///
    /// # Errors
    /// A sensor cannot be opened, or the workload has ended.
    pub fn join(&mut self, id: WorkloadId, parts: MemberParts) -> Result<(), FleetError> {
        let vcpus = self.sensors.read(self.retainer.yield_threads()).map_err(FleetError::Machine)?;
        let member = Member::new(parts, self.mask, self.warn, vcpus);
        let member = member.map_err(|error| FleetError::of_member(id, error, true))?;
        self.members.insert(id, member);
        self.adjust();
        Ok(())
    }

    /// Puts a workload's set back, closes its leases and forgets it. The retention stays, on the vCPUs of those that are
    /// left.
    pub fn leave(&mut self, id: WorkloadId) -> Vec<Outcome> {
        let Some(mut member) = self.members.remove(&id) else { return Vec::new() };
        let outcomes = member.release(&mut self.book);
        self.adjust();
        outcomes
    }

    /// Time since the fleet started: what [`Observation::at`] counts.
    pub fn now(&self) -> Duration {
        self.sensors.now()
    }

    /// The number of changes in force, each with its lease.
    pub fn leases(&self) -> usize {
        self.book.targets().count()
    }

    /// Whether a workload has ended, or was never there. [`Fleet::fds`] has a descriptor that becomes readable then, if
    /// it is a process.
    pub fn ended(&self, id: WorkloadId) -> bool {
        self.members.get(&id).is_none_or(Member::has_ended)
    }

    /// Whether a workload's set is its owner's own ([`ActiveSetLever::Untouched`]).
    pub fn has_own_set(&self, id: WorkloadId) -> bool {
        self.members.get(&id).is_some_and(Member::is_untouched)
    }

    /// The vCPUs that a workload is allowed to use.
    pub fn allowed(&self, id: WorkloadId) -> CpuSet {
        self.members.get(&id).map(|member| member.allowed().clone()).unwrap_or_default()
    }

    /// The processes of a workload by PID, those of each of its parts ([`ActiveSetLever::Several`]) apart; none if they
    /// cannot be listed.
    pub fn processes(&mut self, id: WorkloadId) -> Vec<Vec<u32>> {
        self.members.get_mut(&id).map(Member::processes).unwrap_or_default()
    }

    /// The interval of one workload since its last observation. Reading a progress counter ends as soon as one of
    /// `urgent` is readable. At most once a second, everything that is held is compared with what was written.
    ///
    /// # Errors
    /// A sensor failed, the workload has ended, or somebody else changed a value that is held. No interval is lost: the
    /// next one is longer.
    pub fn observe(&mut self, id: WorkloadId, urgent: &[BorrowedFd<'_>]) -> Result<Observation, FleetError> {
        self.check_right().map_err(FleetError::Machine)?;
        self.check_held()?;
        self.observe_member(id, Some(urgent), Moment::Now)
    }

    /// As [`Fleet::observe`], but ends the interval where that of the workload observed last ended: the machine's
    /// counters are not read again.
    ///
    /// # Errors
    /// A sensor failed, or the workload has ended.
    pub fn observe_too(
        &mut self,
        id: WorkloadId,
        urgent: &[BorrowedFd<'_>],
    ) -> Result<Observation, FleetError> {
        self.observe_member(id, Some(urgent), Moment::Latest)
    }

    /// Without an `urgent` list the run is over: a progress counter is not waited for.
    pub(super) fn observe_member(
        &mut self,
        id: WorkloadId,
        urgent: Option<&[BorrowedFd<'_>]>,
        moment: Moment,
    ) -> Result<Observation, FleetError> {
        let Self { members, sensors, retainer, settling, .. } = self;
        let Some(member) = members.get_mut(&id) else { return Err(FleetError::Ended { id }) };
        let runnable = sensors.runnable().map_err(FleetError::Machine)?;
        let read = &mut *sensors;
        let o = member.observe(urgent, move || match moment {
            Moment::Now => read.read(retainer.yield_threads()),
            Moment::Latest => Ok(read.latest()),
        });
        let o = o.map_err(|error| FleetError::of_member(id, error, member.has_ended()))?;
        settling.update(sensors).map_err(FleetError::Machine)?;
        Ok(Observation { runnable, settled: settling.is_over_on(member.allowed()), ..o })
    }

    /// Checks from time to time whether this process is still allowed to control the machine.
    ///
    /// # Errors
    /// Root's Gleaner controls it.
    pub(super) fn check_right(&mut self) -> Result<(), LiveError> {
        let now = self.now();
        if now.saturating_sub(self.right_checked) >= RIGHT_CHECK_INTERVAL {
            self.right_checked = now;
            self.book.check_right()?;
        }
        Ok(())
    }

    /// Watches, until its next observation, for what makes that of a workload due early. Call it after each decision,
    /// once the setting is in force.
    pub fn watch(&mut self, id: WorkloadId, watch: Option<Watch>) {
        let polled = self.retainer.haltpoll_limit();
        if let Some(member) = self.members.get_mut(&id) {
            member.watch(watch, polled);
        }
    }

    /// Readable when [`Fleet::reported`] or [`Fleet::ended`] has something to say.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.members.values().flat_map(Member::fds).collect()
    }

    /// When to call [`Fleet::reported`] although nothing is readable: what the kernel does not report is sampled.
    pub fn next_sample(&self) -> Option<Instant> {
        self.members.values().filter_map(Member::next_sample).min()
    }

    /// The workloads whose watch has matched: their observations are due now, and hold the overload if it was one. Does
    /// not block.
    ///
    /// # Errors
    /// A sensor failed.
    pub fn reported(&mut self) -> Result<Vec<WorkloadId>, FleetError> {
        let Self { members, sensors, .. } = self;
        let mut matched = Vec::new();
        let mut runnable = None;
        for (&id, member) in members {
            let due = member.next_sample().is_some_and(|due| due <= Instant::now());
            if member.take_report() {
                matched.push(id);
            } else if due {
                let runnable = match runnable {
                    Some(runnable) => runnable,
                    None => *runnable.insert(sensors.runnable().map_err(FleetError::Machine)?),
                };
                match member.sample(runnable) {
                    Ok(enough) => matched.extend(enough.then_some(id)),
                    Err(error) => return Err(FleetError::of_member(id, error, member.has_ended())),
                }
            }
        }
        Ok(matched)
    }

    /// What to measure of a workload, from the observation after the next one on.
    pub fn sense(&mut self, id: WorkloadId, what: Sense) {
        if let Some(member) = self.members.get_mut(&id) {
            member.sense(what);
        }
    }

    /// Takes the sentences for a workload's journal.
    pub fn take_notes(&mut self, id: WorkloadId) -> Vec<String> {
        self.members.get_mut(&id).map(Member::take_notes).unwrap_or_default()
    }
}

/// When an interval ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Now.
    Now,
    /// When the machine's counters were last read.
    Latest,
}

#[cfg(test)]
mod tests;
