//! What keeps the machine's idle vCPUs from halting: haltpoll's limit, latency requests and yield threads.

use std::time::Duration;

use gleaner_kernel::lever::yield_threads::{YieldKind, YieldThreads};
use gleaner_kernel::lever::{Target, haltpoll, pm_qos};
use gleaner_policy::{CpuSet, Method, Retention};

use super::LiveError;
use super::holdings::Holdings;
use crate::lease::{LeaseBook, LeaseError, Outcome};

/// The machine's retention.
#[derive(Debug)]
pub(super) struct Retainer {
    /// The vCPUs that can be retained.
    vcpus: CpuSet,
    in_force: Retention,
    /// Whether some vCPUs were inactive when haltpoll was last set.
    some_inactive: bool,
    yields: Option<(YieldKind, YieldThreads)>,
    holdings: Holdings,
}

/// Whether idle vCPUs poll in the kernel, which leaves a poll limit behind on each.
pub(super) fn polls(method: Method) -> bool {
    matches!(method, Method::Haltpoll | Method::QosPoll)
}

impl Retainer {
    /// Nothing is retained yet.
    pub(super) fn new(vcpus: CpuSet) -> Self {
        Self {
            vcpus,
            in_force: Retention::NONE,
            some_inactive: false,
            yields: None,
            holdings: Holdings::default(),
        }
    }

    /// The retention in force.
    pub(super) fn in_force(&self) -> Retention {
        self.in_force
    }

    /// How long idle vCPUs poll by haltpoll.
    pub(super) fn haltpoll_limit(&self) -> Duration {
        let Retention { method, limit } = self.in_force;
        if method == Method::Haltpoll { limit } else { Duration::ZERO }
    }

    /// The yield threads, with their statistics.
    pub(super) fn yield_threads(&self) -> Option<&YieldThreads> {
        self.yields.as_ref().map(|(_, threads)| threads)
    }

    /// Puts `retention` in force on the vCPUs of `active`; `some_inactive`: these are not all that the workloads are
    /// allowed to use.
    pub(super) fn set(
        &mut self,
        book: &mut LeaseBook,
        retention: Retention,
        active: &CpuSet,
        some_inactive: bool,
    ) -> Result<(), LiveError> {
        let Retention { method, limit } = retention;
        self.haltpoll(book, if method == Method::Haltpoll { limit } else { Duration::ZERO }, some_inactive)?;
        let none = CpuSet::new();
        self.qos_poll(book, if method == Method::QosPoll { active } else { &none })?;
        let kind = match method {
            Method::Yield => Some(YieldKind::Classic),
            Method::YieldIpiFree => Some(YieldKind::IpiFree),
            _ => None,
        };
        self.yield_threads_of(kind, limit, active)?;
        self.in_force = retention;
        Ok(())
    }

    /// Sets the haltpoll limit, which is allowed to shrink while `some_inactive` vCPUs are inactive.
    fn haltpoll(
        &mut self,
        book: &mut LeaseBook,
        limit: Duration,
        some_inactive: bool,
    ) -> Result<(), LiveError> {
        let before = self.haltpoll_limit();
        if limit != before || (!limit.is_zero() && some_inactive != self.some_inactive) {
            let writes = haltpoll::writes(limit, before, some_inactive);
            // The parameters are writable even if no driver reads them. Those that are leased were checked
            // before.
            if !limit.is_zero() && !self.holdings.holds_any(book, &writes) {
                haltpoll::available(book.root())?;
            }
            for write in writes {
                self.holdings.set(book, &write)?;
            }
        }
        self.some_inactive = some_inactive;
        Ok(())
    }

    fn qos_poll(&mut self, book: &mut LeaseBook, polling: &CpuSet) -> Result<(), LiveError> {
        if polling.is_empty() && self.in_force.method != Method::QosPoll {
            return Ok(());
        }
        if !polling.is_empty() && self.in_force.method != Method::QosPoll {
            pm_qos::available(book.root())?;
        }
        let (on, off) = pm_qos::writes(polling, &self.vcpus);
        for write in on {
            self.holdings.set(book, &write)?;
        }
        for file in off {
            book.reset(&Target::File(file))?;
        }
        // The request leaves a poll limit behind, which only the governor's own parameters reset.
        if polling.is_empty() && haltpoll::available(book.root()).is_ok() {
            for write in haltpoll::reset() {
                self.holdings.set(book, &write)?;
            }
        }
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
            self.yields = Some((kind, YieldThreads::start(&self.vcpus, kind)?));
        }
        if let Some((_, threads)) = &self.yields {
            threads.set_active(active);
            threads.set_limit(if kind.is_some() { limit } else { Duration::ZERO });
        }
        Ok(())
    }

    /// Whether nobody else has changed what is held.
    ///
    /// # Errors
    /// Somebody has.
    pub(super) fn check(&self, book: &LeaseBook) -> Result<(), LeaseError> {
        self.holdings.check(book)
    }

    pub(super) fn stop_yield_threads(&mut self) {
        self.yields = None;
    }

    /// Retains nothing any more: restores what is still ours, and closes the leases.
    pub(super) fn release(&mut self, book: &mut LeaseBook) -> Vec<Outcome> {
        self.stop_yield_threads();
        self.in_force = Retention::NONE;
        self.holdings.release(book, |_| true)
    }
}
