//! Recording: each switch and each wake-up of a workload, as they happen.

mod raw;

use std::cell::RefCell;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::time::Duration;

use gleaner_kernel::Root;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Iter, IterOpts, Link, OpenObject, RingBuffer, RingBufferBuilder};

use crate::record_skeleton::{RecordSkel, RecordSkelBuilder};
use crate::scope::{Resolved, Scope};
use crate::tracer::TraceError;
use crate::unavailable::{NotAvailable, Rights, Why, text};
use crate::window::programs_clock;

pub use raw::{Seen, SeenWhat, Someone};

/// What came since the last look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The events, in the order of time.
    pub events: Vec<Seen>,
    /// So many more found no room, since their buffer was full.
    pub lost: u64,
}

/// Records until it is dropped, which detaches and frees everything. So does the end of the process, however it ends.
///
/// It costs some hundred nanoseconds at each switch and wake-up of the workload, and at each beginning and end of an
/// idle period.
pub struct Recorder {
    skel: RecordSkel<'static>,
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    seen: Rc<RefCell<Vec<Seen>>>,
    started: Duration,
    lost: u64,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("attached", &self.links.len()).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Records what the threads of `scope` do from now on.
    ///
    /// # Errors
    /// There is no such scope, or nothing can be recorded here.
    pub fn start(scope: &Scope) -> Result<Self, TraceError> {
        libbpf_rs::set_print(None);
        let scope = scope.resolve(&Root::system())?;
        let refused = |error: libbpf_rs::Error| {
            let why = Why::from_load("record", error.kind(), text(&error), Rights::now());
            NotAvailable::new("recording", why)
        };
        let skel = load(&scope).map_err(refused)?;
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut ring = RingBufferBuilder::new();
        let filled = Rc::clone(&seen);
        ring.add(&skel.maps.events, move |bytes| {
            filled.borrow_mut().extend(raw::parse(bytes));
            0
        })
        .map_err(refused)?;
        let ring = ring.build().map_err(refused)?;
        let started = programs_clock();
        let progs = &skel.progs;
        // Who is new is known before anybody is looked for, and everybody is known before anything is seen of them.
        let fork = progs.on_fork.attach_trace().map_err(refused)?;
        look_at_all(&skel).map_err(|detail| {
            let why = Why::Rejected { program: "first_look".to_owned(), detail };
            NotAvailable::new("the threads that run already", why)
        })?;
        let wanted = [&progs.on_waking, &progs.on_wakeup_new, &progs.on_switch];
        let mut links = vec![fork];
        for program in wanted {
            links.push(program.attach_trace().map_err(refused)?);
        }
        Ok(Self { skel, links, ring, seen, started, lost: 0 })
    }

    /// How long it has recorded; the events' times count from the same instant.
    pub fn elapsed(&self) -> Duration {
        programs_clock().saturating_sub(self.started)
    }

    /// Records nothing more; what was recorded can still be taken.
    pub fn stop(&mut self) {
        self.links.clear();
    }

    /// What was recorded since the last call. To be called every few milliseconds: the buffer holds about a quarter of a
    /// million events, and what finds no room is lost, and counted.
    ///
    /// # Errors
    /// The buffer cannot be read.
    pub fn take(&mut self) -> Result<Batch, TraceError> {
        self.ring.consume().map_err(|error| TraceError::Read(text(&error)))?;
        let lost = self.skel.maps.bss_data.as_deref().map_or(0, |data| data.lost);
        let mut events = self.seen.take();
        for event in &mut events {
            event.at = event.at.saturating_sub(self.started);
        }
        // Each vCPU's events come in their order; those of several may be some microseconds apart.
        events.sort_by_key(|event| event.at);
        let lost_before = std::mem::replace(&mut self.lost, lost);
        Ok(Batch { events, lost: lost.saturating_sub(lost_before) })
    }
}

fn load(scope: &Resolved) -> libbpf_rs::Result<RecordSkel<'static>> {
    // A few bytes stay when it is dropped; the programs and maps do not.
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = RecordSkelBuilder::default().open(place)?;
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.scope_kind = scope.kind as u32;
        data.scope_pid = scope.pid;
        data.scope_cgroup = scope.cgroup;
        data.scope_hierarchy = scope.hierarchy as u32;
    }
    open.load()
}

/// Shows the programs every thread that is there already.
fn look_at_all(skel: &RecordSkel<'static>) -> Result<(), String> {
    let link = skel.progs.first_look.attach_iter_with_opts(IterOpts::None).map_err(|e| text(&e))?;
    let mut looks = Iter::new(&link).map_err(|e| text(&e))?;
    io::copy(&mut looks.by_ref(), &mut io::sink()).map(drop).map_err(|e| e.to_string())
}
