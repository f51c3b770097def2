//! The tracer: attaches the programs, reads their counters and knows its cost.

use std::io::{self, Read as _};
use std::time::Instant;

use gleaner_kernel::Root;
use gleaner_kernel::topology;
use libbpf_rs::skel::Skel as _;
use libbpf_rs::{Iter, IterOpts, MapHandle};

use crate::budget::{Budget, Cost};
use crate::budget_thread::{BudgetThread, Counters};
use crate::load::{self, Loaded, program};
use crate::meter::per_run;
use crate::read::Maps;
use crate::received::Received;
use crate::scope::{Scope, ScopeError};
use crate::skeleton::TraceSkel;
use crate::times;
use crate::unavailable::{NotAvailable, Reason, text};
use crate::window::Window;
use crate::{Parts, Snapshot, VcpuTime};

/// Why nothing is traced, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There is no such scope.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// The kernel does not support it, or the user is not allowed to.
    #[error(transparent)]
    NotAvailable(#[from] NotAvailable),
    /// The budget thread cannot be started.
    #[error("cannot start the thread that keeps the cost of tracing low: {0}")]
    Thread(io::Error),
    /// The counters cannot be read.
    #[error("cannot read what the BPF programs counted: {0}")]
    Read(String),
    /// The list of vCPUs cannot be read.
    #[error(transparent)]
    Kernel(#[from] gleaner_kernel::KernelError),
}

/// Traces until dropped, which detaches and frees everything, as does the end of the process.
///
/// A thread of its own keeps the cost within the budget. It measures for 200 ms in each 3 s. If the cost is too high,
/// threads and vCPUs are traced in windows of 50 ms only, at random times, each of which stands for the time around it.
/// If that does not help, fewer kinds of events are counted, and finally tracing ends.
pub struct Tracer {
    skel: TraceSkel<'static>,
    budget_thread: BudgetThread,
    started: Instant,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracer").field("status", &self.budget_thread.status()).finish_non_exhaustive()
    }
}

impl Tracer {
    /// Traces `parts` of what the threads of `scope` do, within the default [`Budget`].
    ///
    /// # Errors
    /// There is no such scope, or wake-ups cannot be traced here. Other parts that cannot be traced are in
    /// [`Snapshot::missing`].
    pub fn start(scope: &Scope, parts: &Parts) -> Result<Self, TraceError> {
        Self::start_within(Budget::default(), scope, parts)
    }

    /// As [`Tracer::start`], within `budget`.
    pub fn start_within(budget: Budget, scope: &Scope, parts: &Parts) -> Result<Self, TraceError> {
        // libbpf's messages come back as errors.
        libbpf_rs::set_print(None);
        let root = Root::system();
        let scope = scope.resolve(&root)?;
        let Loaded { skel, probes, empty, missing } = load::load(&root, parts, &scope)?;
        visit_all(&skel).map_err(|error| {
            let why = Reason::Rejected { program: "first_pass".to_owned(), detail: error };
            NotAvailable::new("the threads that run already", why)
        })?;
        times::visit(topology::online(&root)?.iter());
        let per_run = empty.map(|mut empty| per_run(&mut empty)).unwrap_or_default();
        let failed = |error: libbpf_rs::Error| TraceError::Read(text(&error));
        let mut window = Window::new(MapHandle::try_from(&skel.maps.data_window).map_err(failed)?);
        window.open(1).map_err(failed)?;
        let received = Received::start(&root)?;
        let started = Instant::now();
        let counters = Counters { window, received };
        let budget_thread =
            BudgetThread::start(budget, probes, counters, per_run, missing).map_err(TraceError::Thread)?;
        Ok(Self { skel, budget_thread, started })
    }

    /// What tracing cost when last measured; zero for the first 200 ms.
    pub fn cost(&self) -> Cost {
        self.budget_thread.status().cost.clone()
    }

    /// Whether it still traces; false once that cost too much.
    pub fn is_attached(&self) -> bool {
        self.budget_thread.status().detached.is_none()
    }

    /// What cannot be traced here, or no longer.
    pub fn missing(&self) -> Vec<NotAvailable> {
        self.budget_thread.status().missing.clone()
    }

    /// What was counted so far. Takes a millisecond or two, more with many thread names and edges.
    ///
    /// # Errors
    /// The maps or the list of vCPUs cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, TraceError> {
        let online = topology::online(&Root::system())?;
        let maps = &self.skel.maps;
        // No window opens or closes while this is held.
        let mut status = self.budget_thread.status();
        let maps = Maps {
            hists: &maps.hists,
            counters: &maps.counters,
            threads: &maps.threads,
            edges: &maps.edges,
            names: &maps.names,
            spots: &maps.spots,
            received: status.received.read()?,
        };
        let counted = maps.snapshot(online.iter()).map_err(|error| TraceError::Read(text(&error)))?;
        Ok(Snapshot {
            elapsed: status.detached.unwrap_or_else(Instant::now) - self.started,
            covered: status.window.covered(),
            one_in: status.one_in,
            cost: status.cost.clone(),
            missing: status.missing.clone(),
            ..counted
        })
    }

    /// Where the online vCPUs' time went so far; empty once tracing has ended because it cost too much. Takes some
    /// microseconds per vCPU. Idle time is only known with [`crate::Part::Idle`].
    ///
    /// # Errors
    /// The map or the list of vCPUs cannot be read.
    pub fn vcpu_times(&self) -> Result<Vec<VcpuTime>, TraceError> {
        if !self.is_attached() {
            return Ok(Vec::new());
        }
        let online = topology::online(&Root::system())?;
        times::read(&self.skel.maps.vcpus, online.iter()).map_err(|error| TraceError::Read(text(&error)))
    }
}

/// Runs `first_pass` on every existing thread.
fn visit_all(skel: &TraceSkel<'static>) -> Result<(), String> {
    let first_pass = program(skel.object(), "first_pass").ok_or("it is not loaded")?;
    let link = first_pass.attach_iter_with_opts(IterOpts::None).map_err(|e| text(&e))?;
    let mut visits = Iter::new(&link).map_err(|e| text(&e))?;
    let mut nothing = [0; 256];
    loop {
        match visits.read(&mut nothing) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
