//! Notices run-queue overload between observations: the kernel reports it where possible, else runnable threads
//! are counted.

use std::error::Error;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use gleaner_policy::{CpuSet, Overload, OverloadSource, Watch};

/// The overload to report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverloadQuery {
    /// The vCPUs concerned.
    pub active: CpuSet,
    /// The least number of runnable threads there.
    pub at_least: u32,
    /// For how long there must be that many.
    pub persistence: Duration,
    /// How long idle vCPUs poll before they halt: sampling from an idle vCPU should let it halt.
    pub polled: Duration,
}

/// Reports threads that queue up on active vCPUs. Ends with the process, however that ends.
pub trait OverloadWatch: fmt::Debug {
    /// Reports the next overload as `asked`, once. Called often: the first call may take tens of milliseconds,
    /// later ones must not.
    ///
    /// # Errors
    /// It is not available here; the text says why. It is not tried again.
    fn arm(&mut self, asked: &OverloadQuery) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Cancels the report.
    fn disarm(&mut self);

    /// Readable when there is a report; `None` before the first arming.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// The overload, if one was reported. Does not block.
    fn read(&mut self) -> Option<Overload>;
}

/// After an overload that changed nothing, it is not armed again for this time: the same one would be reported
/// at once.
const REARM_DELAY: Duration = Duration::from_millis(15);

/// The overload watch, if there is one.
#[derive(Debug)]
pub(super) struct OverloadMonitor {
    watch: Option<Box<dyn OverloadWatch>>,
    armed: Option<OverloadQuery>,
    /// The vCPUs of the latest report, and its time.
    reported: Option<(CpuSet, Instant)>,
    /// [`REARM_DELAY`], except in tests.
    rearm_delay: Duration,
    /// A sentence for the journal.
    note: Option<String>,
}

impl OverloadMonitor {
    pub(super) fn new(watch: Option<Box<dyn OverloadWatch>>) -> Self {
        Self { watch, armed: None, reported: None, rearm_delay: REARM_DELAY, note: None }
    }

    /// Arms the report of an overload on `active` if `watch` asks for one; idle vCPUs poll for `polled`. If
    /// false, it must be sampled instead.
    pub(super) fn arm(&mut self, watch: Option<Watch>, active: &CpuSet, polled: Duration) -> bool {
        let wanted = watch.and_then(|w| Some((w.at_least?, w.persistence)));
        let Some((at_least, persistence)) = wanted else {
            self.disarm();
            return false;
        };
        let wanted = OverloadQuery { active: active.clone(), at_least, persistence, polled };
        if self.armed.as_ref() == Some(&wanted) {
            return true;
        }
        let again = |(set, at): &(CpuSet, Instant)| set == active && at.elapsed() < self.rearm_delay;
        if self.reported.as_ref().is_some_and(again) {
            return false;
        }
        let Some(kernel) = &mut self.watch else { return false };
        match kernel.arm(&wanted) {
            Ok(()) => {
                self.armed = Some(wanted);
                true
            }
            Err(error) => {
                self.note =
                    Some(format!("{error}; runnable threads are counted every few milliseconds instead"));
                (self.watch, self.armed) = (None, None);
                false
            }
        }
    }

    /// A descriptor to poll for reports.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().filter(|_| self.armed.is_some())?.fd()
    }

    /// Takes the report, if there is one.
    pub(super) fn reported(&mut self) -> Option<Overload> {
        let armed = self.armed.as_ref()?;
        let overload = self.watch.as_mut()?.read()?;
        self.reported = Some((armed.active.clone(), Instant::now()));
        self.armed = None;
        Some(overload)
    }

    pub(super) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn disarm(&mut self) {
        if self.armed.take().is_some()
            && let Some(watch) = &mut self.watch
        {
            watch.disarm();
        }
    }
}

/// Consecutive samples that match a watch.
#[derive(Debug)]
pub(super) struct Samples {
    watch: Watch,
    /// Their number; the time of the first, and the workload's run delay then.
    matched: u32,
    first: Option<(Instant, Duration)>,
}

impl Samples {
    pub(super) fn new(watch: Watch) -> Self {
        Self { watch, matched: 0, first: None }
    }

    pub(super) fn every(&self) -> Duration {
        self.watch.every
    }

    /// Takes one sample; `run_delay` reads the run delay of the workload's threads so far. True if this was the
    /// last one needed, with the overload if threads queue up.
    ///
    /// # Errors
    /// `run_delay` failed.
    pub(super) fn take<E>(
        &mut self,
        runnable: u32,
        run_delay: impl FnOnce() -> Result<Duration, E>,
    ) -> Result<(bool, Option<Overload>), E> {
        if !self.watch.matches(runnable) {
            (self.matched, self.first) = (0, None);
            return Ok((false, None));
        }
        self.matched += 1;
        let last = self.matched >= self.watch.times;
        if self.watch.at_least.is_none_or(|n| runnable < n) {
            return Ok((last, None));
        }
        // Reading the run delay of each thread is expensive: only at both ends.
        let Some((since, before)) = self.first else {
            self.first = Some((Instant::now(), run_delay()?));
            return Ok((last, None));
        };
        if !last {
            return Ok((false, None));
        }
        let waited = run_delay()?.saturating_sub(before).as_secs_f64();
        let waiting = waited / since.elapsed().as_secs_f64().max(1e-6);
        Ok((true, Some(Overload { runnable, waiting, source: OverloadSource::Counts })))
    }
}

#[cfg(test)]
mod tests;
