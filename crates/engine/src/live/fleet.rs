//! This machine, controlled for any number of workloads: one lease book, one retention, an active set for each.
//!
//! The retention acts on the whole machine, and so does what follows from it: which vCPUs still poll by an earlier
//! limit, and how they are made to stop. A workload has its sensors and its set of active vCPUs. Nothing here waits:
//! the driver polls [`Fleet::fds`] until [`Fleet::next_sample`], and then asks for [`Fleet::reported`].
//!
//! Errors say whom they concern. One of a workload leaves the others and the machine's retention in force; so does a
//! value that somebody else changed, after which that lever is given up by [`Fleet::abandon_set`] or
//! [`Fleet::abandon_retention`].

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use gleaner_kernel::workload::WorkloadSensor;
use gleaner_policy::{CpuSet, Observation, Retention, Watch, WorkloadId};
use nix::unistd::Pid;

use super::{
    ActiveSetLever, Counter, LiveError, OverloadWatch, ProcessFd, Signals, TrafficSensor, WaitingSensor,
};
use crate::lease::{LeaseBook, LeaseError, Outcome};

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
    /// The process whose end is the workload's end; without one, that is the end of its last process.
    pub process: Option<(Pid, ProcessFd)>,
    /// Reports overload of a smaller set, if available.
    pub overloads: Option<Box<dyn OverloadWatch>>,
    /// Measures how long the workload's threads wait after a wake-up, if available.
    pub waiting: Option<Box<dyn WaitingSensor>>,
    /// Counts the workload's socket traffic, if available.
    pub traffic: Option<Box<dyn TrafficSensor>>,
    /// The cost of waking a halted vCPU, to estimate what is not measured.
    pub wake_cost: Duration,
}

/// What failed, by whom it concerns.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// Somebody else changed the CPU set of this workload, and owns it now: call [`Fleet::abandon_set`].
    #[error("{theirs}")]
    SetTaken {
        /// Whose set.
        id: WorkloadId,
        /// The target and its present value.
        theirs: LeaseError,
    },
    /// Somebody else changed what retains idle vCPUs, and owns it now: call [`Fleet::abandon_retention`].
    #[error("{theirs}")]
    RetentionTaken {
        /// The target and its present value.
        theirs: LeaseError,
    },
    /// The workload has ended: call [`Fleet::leave`].
    #[error("workload {id} has ended")]
    Ended {
        /// The workload.
        id: WorkloadId,
    },
    /// A sensor or lever of this workload failed. The others are not affected.
    #[error("{error}")]
    Member {
        /// The workload.
        id: WorkloadId,
        /// What failed.
        error: LiveError,
    },
    /// A sensor or lever of the machine failed.
    #[error("{0}")]
    Machine(LiveError),
}

/// This machine, for any number of workloads.
#[derive(Debug)]
pub struct Fleet {
    book: LeaseBook,
}

#[allow(clippy::unused_self, clippy::needless_pass_by_value, unused_variables, reason = "signatures")]
#[allow(clippy::needless_pass_by_ref_mut, clippy::unimplemented, reason = "signatures")]
impl Fleet {
    /// Starts to observe the machine, without changing anything. `vcpus` are those that can be retained. The commands
    /// of progress counters get the signal mask from before `signals`; `warn` prints a sentence for the user at once.
    ///
    /// # Errors
    /// A sensor that every workload needs is missing.
    pub fn new(book: LeaseBook, vcpus: CpuSet, signals: &Signals, warn: fn(&str)) -> Result<Self, LiveError> {
        Ok(Self { book })
    }

    /// Starts to observe one more workload, without changing anything.
    ///
    /// # Errors
    /// A sensor cannot be opened, or the workload has ended.
    pub fn join(&mut self, id: WorkloadId, parts: MemberParts) -> Result<(), FleetError> {
        unimplemented!()
    }

    /// Puts a workload's set back, closes its leases and forgets it. The retention stays; the vCPUs that it retains
    /// are adjusted to the workloads that are left.
    pub fn leave(&mut self, id: WorkloadId) -> Vec<Outcome> {
        unimplemented!()
    }

    /// Time since the fleet started: what [`Observation::at`] counts.
    pub fn now(&self) -> Duration {
        unimplemented!()
    }

    /// Whether a workload has ended. [`Fleet::fds`] has the descriptors that become readable then, if there are any.
    pub fn ended(&self, id: WorkloadId) -> bool {
        unimplemented!()
    }

    /// The vCPUs that a workload is allowed to use, read anew after [`Fleet::abandon_set`].
    pub fn allowed(&self, id: WorkloadId) -> CpuSet {
        unimplemented!()
    }

    /// The interval of one workload since its last observation. Reading a progress counter ends as soon as one of
    /// `urgent` is readable. At most once a second, everything that is held is compared with what was written.
    ///
    /// # Errors
    /// A sensor failed, the workload has ended, or somebody else changed a value that is held. No interval is lost:
    /// the next one is longer.
    pub fn observe(&mut self, id: WorkloadId, urgent: &[BorrowedFd<'_>]) -> Result<Observation, FleetError> {
        unimplemented!()
    }

    /// As [`Fleet::observe`], but ends the interval where the latest observation of another workload ended: the
    /// machine's counters are not read again.
    ///
    /// # Errors
    /// As [`Fleet::observe`].
    pub fn observe_too(
        &mut self,
        id: WorkloadId,
        urgent: &[BorrowedFd<'_>],
    ) -> Result<Observation, FleetError> {
        unimplemented!()
    }

    /// Puts a workload's set of active vCPUs in force. Does nothing if it has ended meanwhile.
    ///
    /// # Errors
    /// A lever failed, or somebody else changed the set.
    pub fn place(&mut self, id: WorkloadId, active: &CpuSet) -> Result<(), FleetError> {
        unimplemented!()
    }

    /// Puts a retention in force on all vCPUs that a workload uses. One that is in force already is adjusted: new
    /// threads, if the method needs that.
    ///
    /// # Errors
    /// A lever failed, or somebody else changed what retains.
    pub fn retain(&mut self, retention: Retention) -> Result<(), FleetError> {
        unimplemented!()
    }

    /// Stops vCPUs from polling by an earlier limit, see [`gleaner_policy::Decision::reset_poll_limits`]. Takes up to
    /// some milliseconds.
    ///
    /// # Errors
    /// A lever failed, or somebody else changed a set.
    pub fn reset_poll_limits(&mut self) -> Result<(), FleetError> {
        unimplemented!()
    }

    /// Gives up a workload's set, which somebody else has changed: all vCPUs that are still ours to give are active,
    /// and its leases are closed without writing over the other's value. The allowed vCPUs are read anew.
    pub fn abandon_set(&mut self, id: WorkloadId) -> Vec<Outcome> {
        unimplemented!()
    }

    /// Ends the retention, which somebody else has changed: what is still ours is put back, the other's value stays.
    pub fn abandon_retention(&mut self) -> Vec<Outcome> {
        unimplemented!()
    }

    /// Watches, until its next observation, for what makes that of a workload due early. Call it after each decision,
    /// once the setting is in force.
    pub fn watch(&mut self, id: WorkloadId, watch: Option<Watch>) {
        unimplemented!()
    }

    /// Readable when [`Fleet::reported`] or [`Fleet::ended`] has something to say.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        unimplemented!()
    }

    /// When to call [`Fleet::reported`] although nothing is readable: what the kernel does not report is sampled.
    pub fn next_sample(&self) -> Option<Instant> {
        unimplemented!()
    }

    /// The workloads whose watch has matched: their observations are due now, and hold the overload if it was one.
    /// Does not block.
    ///
    /// # Errors
    /// A sensor failed.
    pub fn reported(&mut self) -> Result<Vec<WorkloadId>, FleetError> {
        unimplemented!()
    }

    /// Whether to measure a workload's wake-up latencies, from the observation after the next one on.
    pub fn sense_waiting(&mut self, id: WorkloadId, wanted: bool) {
        unimplemented!()
    }

    /// Takes the sentences for a workload's journal.
    pub fn take_notes(&mut self, id: WorkloadId) -> Vec<String> {
        unimplemented!()
    }

    /// Restores everything.
    pub fn close(self) -> Vec<Outcome> {
        self.book.close()
    }
}
