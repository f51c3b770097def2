//! One workload: its sensors, its active set, and what ends an interval early.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use gleaner_policy::{CpuSet, Observation, Overload, Sense, Watch};
use nix::sys::signal::SigSet;

use super::active_set::ActiveSet;
use super::counter::CounterReader;
use super::fleet::MemberParts;
use super::overload::{OverloadMonitor, Samples};
use super::sensors::Sensors;
use super::sockets::Traffic;
use super::vcpus::VcpuReading;
use super::waiting::Waits;
use super::{LiveError, ProcessFd};
use crate::lease::{LeaseBook, LeaseError, Outcome};

/// One workload of a fleet.
#[derive(Debug)]
pub(super) struct Member {
    sensors: Sensors,
    set: ActiveSet,
    heads: Vec<ProcessFd>,
    /// Whether one of them heads each part of the workload.
    each_part_has_head: bool,
    overloads: OverloadMonitor,
    /// Where the kernel reports nothing: the samples so far, and when the next one is due.
    samples: Option<(Samples, Instant)>,
    /// The overload that ends the present interval.
    overload: Option<Overload>,
    notes: Vec<String>,
}

impl Member {
    /// Changes nothing. `mask` is the signal mask of the counter's command; the first interval starts with `vcpus`.
    pub(super) fn new(
        mut parts: MemberParts,
        mask: SigSet,
        warn: fn(&str),
        vcpus: &VcpuReading,
    ) -> Result<Self, LiveError> {
        let waits = Waits::new(parts.waiting, parts.wake_cost);
        let traffic = Traffic::new(parts.traffic);
        let counter = parts.counter.map(|counter| CounterReader::new(counter, mask, warn));
        let each_part_has_head = parts.heads.len() >= parts.place.parts().len().max(1);
        Ok(Self {
            each_part_has_head,
            sensors: Sensors::new(parts.workload, counter, (waits, traffic), vcpus)?,
            set: ActiveSet::new(parts.place, parts.allowed),
            heads: parts.heads,
            overloads: OverloadMonitor::new(parts.overloads),
            samples: None,
            overload: None,
            notes: Vec::new(),
        })
    }

    /// The vCPUs that the workload is allowed to use.
    pub(super) fn allowed(&self) -> &CpuSet {
        self.set.allowed()
    }

    /// The active vCPUs.
    pub(super) fn active(&self) -> &CpuSet {
        self.set.active()
    }

    /// Whether fewer vCPUs are active than the workload is allowed to use.
    pub(super) fn is_consolidated(&self) -> bool {
        self.active() != self.allowed()
    }

    pub(super) fn has_ended(&self) -> bool {
        // A group that is gone while the process that heads it runs on is a fault, which the next observation reports.
        let is_gone = || !self.each_part_has_head && !self.sensors.has_workload();
        let is_empty = || self.heads.is_empty() && self.sensors.processes() == 0;
        is_empty() || is_gone() || self.heads.iter().any(ProcessFd::ended)
    }

    /// See [`Fleet::processes`](super::Fleet::processes).
    pub(super) fn processes(&mut self) -> Vec<Vec<u32>> {
        let of_parts = self.set.parts().map(|part| part.processes().unwrap_or_default()).collect::<Vec<_>>();
        if of_parts.is_empty() { vec![self.sensors.list_processes().unwrap_or_default()] } else { of_parts }
    }

    /// See [`Sensors::observe`].
    pub(super) fn observe<'v>(
        &mut self,
        urgent: Option<&[BorrowedFd<'_>]>,
        vcpus: impl FnOnce() -> Result<&'v VcpuReading, LiveError>,
    ) -> Result<Observation, LiveError> {
        let mut all = urgent.map(<[_]>::to_vec);
        if let Some(all) = &mut all {
            all.extend(self.heads.iter().map(AsFd::as_fd));
        }
        let mut o = self.sensors.observe(all.as_deref(), self.set.allowed(), vcpus)?;
        o.overload = self.overload.take();
        Ok(o)
    }

    /// See [`ActiveSet::set`].
    pub(super) fn place(&mut self, book: &mut LeaseBook, active: &CpuSet) -> Result<(), LiveError> {
        let Self { sensors, set, notes, .. } = self;
        set.set(book, active, &mut || sensors.threads(), notes)
    }

    /// See [`ActiveSet::set_batch`].
    pub(super) fn set_batch(&mut self, book: &mut LeaseBook, on: bool) -> Result<(), LiveError> {
        let Self { sensors, set, notes, .. } = self;
        set.set_batch(book, on, &mut || sensors.threads(), notes)
    }

    /// Whether its threads can be moved as often as one likes.
    pub(super) fn is_movable(&mut self) -> Result<bool, LiveError> {
        Ok(self.sensors.threads()?.len() <= self.set.most_threads())
    }

    /// Moves the workload off the vCPUs of `idle`, if it is allowed to be elsewhere: on those of its active vCPUs that
    /// are left, else on others of `used`. [`Member::reoccupy`] ends it.
    pub(super) fn vacate(
        &mut self,
        book: &mut LeaseBook,
        idle: &CpuSet,
        used: &CpuSet,
    ) -> Result<(), LiveError> {
        let left = self.active().difference(idle);
        let elsewhere =
            if left.is_empty() { used.difference(idle).intersection(self.allowed()) } else { left };
        if elsewhere.is_empty() || elsewhere == *self.active() {
            return Ok(());
        }
        let Self { sensors, set, .. } = self;
        set.move_to(book, &elsewhere, &mut || sensors.threads())
    }

    /// Moves the workload back to its active vCPUs.
    pub(super) fn reoccupy(&mut self, book: &mut LeaseBook) -> Result<(), LiveError> {
        let Self { sensors, set, .. } = self;
        set.reoccupy(book, &mut || sensors.threads())
    }

    /// See [`ActiveSet::check`].
    pub(super) fn check(&mut self, book: &mut LeaseBook) -> Result<(), LeaseError> {
        self.set.check(book)
    }

    /// Call it before leases are closed otherwise than by [`Member::release`].
    pub(super) fn end(&mut self, book: &mut LeaseBook) {
        let Self { sensors, set, .. } = self;
        set.free_new_threads(book, &mut || sensors.threads());
        set.end(book);
    }

    /// See [`ActiveSet::set_given_up`].
    pub(super) fn set_given_up(&mut self, given_up: bool) {
        self.set.set_given_up(given_up);
    }

    /// See [`ActiveSet::is_untouched`].
    pub(super) fn is_untouched(&self) -> bool {
        self.set.is_untouched()
    }

    /// See [`ActiveSet::settle`].
    #[cfg(test)]
    pub(super) fn settle(&mut self) {
        self.set.settle();
    }

    /// See [`ActiveSet::release`].
    pub(super) fn release(&mut self, book: &mut LeaseBook) -> Vec<Outcome> {
        let Self { sensors, set, .. } = self;
        set.free_new_threads(book, &mut || sensors.threads());
        set.release(book)
    }

    /// Watches for what makes the next observation due early; idle vCPUs poll for `polled`.
    pub(super) fn watch(&mut self, watch: Option<Watch>, polled: Duration) {
        let reported = self.overloads.arm(watch, self.set.active(), polled);
        self.samples = watch.filter(|_| !reported).map(|watch| {
            let samples = Samples::new(watch);
            let due = Instant::now() + samples.every();
            (samples, due)
        });
    }

    /// Readable if the kernel reports an overload, or when one of the processes ends.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.overloads.fd().into_iter().chain(self.heads.iter().map(AsFd::as_fd))
    }

    /// When the next sample is due.
    pub(super) fn next_sample(&self) -> Option<Instant> {
        self.samples.as_ref().map(|(_, due)| *due)
    }

    /// Whether the kernel has reported an overload.
    pub(super) fn take_report(&mut self) -> bool {
        let reported = self.overloads.reported();
        let any = reported.is_some();
        if any {
            self.overload = reported;
            self.samples = None;
        }
        any
    }

    /// Takes the sample that is due, of `runnable` threads; true if the watch has matched.
    pub(super) fn sample(&mut self, runnable: u32) -> Result<bool, LiveError> {
        let Some((samples, due)) = &mut self.samples else { return Ok(false) };
        let sensors = &mut self.sensors;
        let (enough, overload) = samples.take(runnable, || sensors.run_delay())?;
        *due = Instant::now() + samples.every();
        if enough {
            self.overload = overload;
            self.samples = None;
        }
        Ok(enough)
    }

    /// See [`Sensors::sense`].
    pub(super) fn sense(&mut self, what: Sense) {
        self.sensors.sense(what);
    }

    /// Takes the sentences for the journal.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.overloads.take_note());
        notes.extend(self.sensors.take_notes());
        notes
    }
}
