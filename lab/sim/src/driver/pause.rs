//! A pause of a run in simulated time: when to check its condition, and how it ends.

use std::time::Duration;

use gleaner_engine::Pause;
use gleaner_policy::{Overload, OverloadSource};

use super::ns;
use crate::ids::{Ns, Vm};
use crate::world::World;

/// Sampling interval of the BPF program that reports run-queue overload.
const SAMPLING_INTERVAL: Duration = Duration::from_micros(500);
/// For this long after a report, overload is detected by counting: BPF would report the same one again.
const REARM_DELAY: Duration = Duration::from_millis(15);

/// A pausing run.
#[derive(Debug)]
pub(super) struct Paused {
    pause: Pause,
    until: Ns,
    /// What counts runnable threads, the interval between counts, and how many consecutive counts must match.
    source: OverloadSource,
    every: Ns,
    times: u32,
    /// Consecutive matching counts so far, and the sum of the threads waiting at each.
    matched: u32,
    waiting: u32,
    next: Ns,
}

/// How a pause ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum End {
    /// Its time is over, or the watched condition is met.
    Due,
    /// More threads are runnable than there are active vCPUs.
    Overload(Overload),
}

impl Paused {
    /// Starts `pause` now; `reported` is the time of the latest overload report.
    pub(super) fn new(world: &World, pause: Pause, reported: Option<Ns>) -> Self {
        let now = world.now();
        let rests = reported.is_some_and(|at| now < at + ns(REARM_DELAY));
        let (source, every, times) = match pause.watch {
            Some(watch) if watch.at_least.is_some() && !rests => {
                let samples = watch.persistence.div_duration_f64(SAMPLING_INTERVAL).ceil();
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few samples")]
                let times = samples as u32 + 1;
                (OverloadSource::RunQueues, SAMPLING_INTERVAL, times)
            }
            Some(watch) => (OverloadSource::Counts, watch.every, watch.times),
            None => (OverloadSource::Counts, pause.length, 1),
        };
        let mut paused = Self {
            pause,
            until: now.saturating_add(ns(pause.length)),
            source,
            every: ns(every).max(1),
            times,
            matched: 0,
            waiting: 0,
            next: now,
        };
        paused.schedule_check(now);
        paused
    }

    /// Time of the next check.
    pub(super) fn next(&self) -> Ns {
        self.next
    }

    /// Checks now; returns how the pause ended, if it did.
    pub(super) fn check(&mut self, world: &World, vm: Vm) -> Option<End> {
        let now = world.now();
        self.schedule_check(now);
        let due = (now >= self.until).then_some(End::Due);
        let Some(watch) = self.pause.watch else { return due };
        let runnable = world.runnable(vm);
        if !watch.matches(runnable) {
            (self.matched, self.waiting) = (0, 0);
            return due;
        }
        self.matched += 1;
        self.waiting += runnable.saturating_sub(world.active_vcpus(vm));
        if self.matched < self.times {
            return due;
        }
        let overloaded = watch.at_least.is_some_and(|n| runnable >= n);
        let waiting = f64::from(self.waiting) / f64::from(self.matched);
        Some(if overloaded {
            End::Overload(Overload { runnable, waiting, source: self.source })
        } else {
            End::Due
        })
    }

    fn schedule_check(&mut self, now: Ns) {
        self.next = now.saturating_add(self.every).min(self.until);
    }
}
