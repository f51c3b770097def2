//! Noticing run-queue overload between observations: reported by the kernel where it can be, else found by counting
//! runnable threads.

use std::error::Error;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use gleaner_policy::{CpuSet, Overload, OverloadSource, Watch};

/// Which overload is to be reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverloadQuery {
    /// The vCPUs on which it is.
    pub active: CpuSet,
    /// The least number of threads that want to run there.
    pub at_least: u32,
    /// For how long they must have been so many.
    pub persistence: Duration,
    /// For how long idle vCPUs poll before they halt: looks from an idle vCPU should let it halt.
    pub polled: Duration,
}

/// Tells without being asked that threads queue up on active vCPUs. Ends with the process, however that ends.
pub trait OverloadWatch: fmt::Debug {
    /// Tells once, from now on, when there is what is asked for. Called often: the first time may take tens of
    /// milliseconds, later ones must not.
    ///
    /// # Errors
    /// It cannot be had here; the text says why. It is not asked again then.
    fn arm(&mut self, asked: &OverloadQuery) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Tells nothing any more.
    fn disarm(&mut self);

    /// Becomes readable when there is something to tell; none before the first arming.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// The overload, if there is one. Does not wait.
    fn read(&mut self) -> Option<Overload>;
}

/// After an overload that changed nothing it is not asked for again for so long: the same one would be reported at once.
const REST: Duration = Duration::from_millis(15);

/// The watch that there is, if any.
#[derive(Debug)]
pub(super) struct Sentry {
    watch: Option<Box<dyn OverloadWatch>>,
    armed: Option<OverloadQuery>,
    /// The set of vCPUs for which the latest overload was reported, and when.
    reported: Option<(CpuSet, Instant)>,
    /// [`REST`], unless a test has time.
    rest: Duration,
    /// For the journal.
    note: Option<String>,
}

impl Sentry {
    pub(super) fn new(watch: Option<Box<dyn OverloadWatch>>) -> Self {
        Self { watch, armed: None, reported: None, rest: REST, note: None }
    }

    /// Sees to it that an overload on `active` is reported where `watch` asks for that; idle vCPUs poll for `polled`. False: it
    /// must be looked for.
    pub(super) fn stand(&mut self, watch: Option<Watch>, active: &CpuSet, polled: Duration) -> bool {
        let wanted = watch.and_then(|w| Some((w.at_least?, w.persistence)));
        let Some((at_least, persistence)) = wanted else {
            self.rest();
            return false;
        };
        let wanted = OverloadQuery { active: active.clone(), at_least, persistence, polled };
        if self.armed.as_ref() == Some(&wanted) {
            return true;
        }
        let again = |(set, at): &(CpuSet, Instant)| set == active && at.elapsed() < self.rest;
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

    /// Something to wait for besides.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().filter(|_| self.armed.is_some())?.fd()
    }

    /// The overload that was reported, if one was.
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

    fn rest(&mut self) {
        if self.armed.take().is_some()
            && let Some(watch) = &mut self.watch
        {
            watch.disarm();
        }
    }
}

/// Looks in a row that found what a watch asks for.
#[derive(Debug)]
pub(super) struct Looks {
    watch: Watch,
    /// How many there were, when the first one was, and the workload's run delay then.
    matched: u32,
    first: Option<(Instant, Duration)>,
}

impl Looks {
    pub(super) fn new(watch: Watch) -> Self {
        Self { watch, matched: 0, first: None }
    }

    pub(super) fn every(&self) -> Duration {
        self.watch.every
    }

    /// Takes one look; `run_delay` is what the workload's threads have waited so far. True when that was the last one
    /// needed, with the overload if threads queue up.
    ///
    /// # Errors
    /// `run_delay` failed.
    pub(super) fn look<E>(
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
        // Reading what each thread has waited is expensive: only at the ends.
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
