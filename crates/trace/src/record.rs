//! Records each context switch and wake-up of a workload, one by one.

mod raw;

use std::cell::RefCell;
use std::io::{self, Read as _};
use std::rc::Rc;
use std::time::Duration;

use gleaner_kernel::Root;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Iter, IterOpts, Link, RingBuffer, RingBufferBuilder};

use crate::load::object_place;
use crate::record_skeleton::{RecordSkel, RecordSkelBuilder};
use crate::scope::{Resolved, Scope, set_scope};
use crate::tracer::TraceError;
use crate::unavailable::{NotAvailable, Reason, Rights, from_load, text};
use crate::window::programs_clock;

pub use raw::{RecordedEvent, RecordedKind, RecordedTask};

/// The events since the last call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Events, sorted by time.
    pub events: Vec<RecordedEvent>,
    /// Number of further events that were lost because the buffer was full.
    pub lost: u64,
}

/// Records until dropped, which detaches and frees everything, as does the end of the process.
///
/// Costs some hundred nanoseconds at each switch and wake-up of the workload, and at the start and end of each idle
/// period.
pub struct Recorder {
    skel: RecordSkel<'static>,
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    events: Rc<RefCell<Vec<RecordedEvent>>>,
    started: Duration,
    lost: u64,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("attached", &self.links.len()).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Records the threads of `scope` from now on.
    ///
    /// # Errors
    /// There is no such scope, or recording is not possible here.
    pub fn start(scope: &Scope) -> Result<Self, TraceError> {
        libbpf_rs::set_print(None);
        let scope = scope.resolve(&Root::system())?;
        let refused = |error: libbpf_rs::Error| {
            let why = from_load("record", error.kind(), text(&error), Rights::now());
            NotAvailable::new("recording", why)
        };
        let skel = load(&scope).map_err(refused)?;
        let events = Rc::new(RefCell::new(Vec::new()));
        let mut ring = RingBufferBuilder::new();
        let filled = Rc::clone(&events);
        ring.add(&skel.maps.events, move |bytes| {
            filled.borrow_mut().extend(raw::parse(bytes));
            0
        })
        .map_err(refused)?;
        let ring = ring.build().map_err(refused)?;
        let started = programs_clock();
        let progs = &skel.progs;
        // New threads must be recognised before existing ones are listed, and all threads before the first event.
        let fork = progs.on_fork.attach_trace().map_err(refused)?;
        visit_all(&skel).map_err(|detail| {
            let why = Reason::Rejected { program: "first_pass".to_owned(), detail };
            NotAvailable::new("the threads that run already", why)
        })?;
        let wanted = [&progs.on_waking, &progs.on_wakeup_new, &progs.on_switch];
        let mut links = vec![fork];
        for program in wanted {
            links.push(program.attach_trace().map_err(refused)?);
        }
        Ok(Self { skel, links, ring, events, started, lost: 0 })
    }

    /// Time since the start of the recording, from which the events' times count, too.
    pub fn elapsed(&self) -> Duration {
        programs_clock().saturating_sub(self.started)
    }

    /// Stops recording. Recorded events can still be taken.
    pub fn stop(&mut self) {
        self.links.clear();
    }

    /// The events since the last call. Call it every few milliseconds: the buffer holds about a quarter of a million
    /// events, and events that do not fit are lost and counted.
    ///
    /// # Errors
    /// The buffer cannot be read.
    pub fn take(&mut self) -> Result<Batch, TraceError> {
        self.ring.consume().map_err(|error| TraceError::Read(text(&error)))?;
        let lost = self.skel.maps.bss_data.as_deref().map_or(0, |data| data.lost);
        let mut events = self.events.take();
        for event in &mut events {
            event.at = event.at.saturating_sub(self.started);
        }
        // Each vCPU's events are in order; those of different vCPUs can be some microseconds off.
        events.sort_by_key(|event| event.at);
        let lost_before = std::mem::replace(&mut self.lost, lost);
        Ok(Batch { events, lost: lost.saturating_sub(lost_before) })
    }
}

fn load(scope: &Resolved) -> libbpf_rs::Result<RecordSkel<'static>> {
    let mut open = RecordSkelBuilder::default().open(object_place())?;
    set_scope!(open, scope);
    open.load()
}

/// Runs `first_pass` on every existing thread.
fn visit_all(skel: &RecordSkel<'static>) -> Result<(), String> {
    let link = skel.progs.first_pass.attach_iter_with_opts(IterOpts::None).map_err(|e| text(&e))?;
    let mut visits = Iter::new(&link).map_err(|e| text(&e))?;
    io::copy(&mut visits.by_ref(), &mut io::sink()).map(drop).map_err(|e| e.to_string())
}
