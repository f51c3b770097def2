//! The tracer: what is attached, what it counted and what it costs.

use std::io::{self, Read as _};
use std::time::Instant;

use gleaner_kernel::Root;
use gleaner_kernel::topology;
use libbpf_rs::skel::Skel as _;
use libbpf_rs::{Iter, IterOpts, Link, ProgramInput};

use crate::budget::{Budget, Cost, MAX_SHIFT, Verdict};
use crate::load::{self, Loaded, program};
use crate::meter::{Meter, run_time};
use crate::part::Program;
use crate::read::Maps;
use crate::scope::{Scope, ScopeError};
use crate::skeleton::TraceSkel;
use crate::times;
use crate::unavailable::{NotAvailable, Why, text};
use crate::{Parts, Snapshot, VcpuTime};

/// The program that does nothing.
const EMPTY: &str = "nothing";
/// Some microseconds' worth.
const EMPTY_RUNS: usize = 200;

/// Why nothing is traced, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There are no such threads.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// This kernel, or this user's rights, do not allow it.
    #[error(transparent)]
    NotAvailable(#[from] NotAvailable),
    /// The counters could not be read.
    #[error("cannot read what the BPF programs counted: {0}")]
    Read(String),
    /// The vCPUs could not be told.
    #[error(transparent)]
    Kernel(#[from] gleaner_kernel::KernelError),
}

/// Traces until it is dropped, which detaches and frees everything. So does the end of the process, however it ends.
pub struct Tracer {
    skel: TraceSkel<'static>,
    attached: Vec<(&'static Program, Link)>,
    missing: Vec<NotAvailable>,
    budget: Budget,
    meter: Meter,
    cost: Cost,
    started: Instant,
    detached: Option<Instant>,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let programs: Vec<&str> = self.attached.iter().map(|(program, _)| program.name).collect();
        f.debug_struct("Tracer")
            .field("programs", &programs)
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

impl Tracer {
    /// Traces `parts` of what the threads of `scope` do, within the usual [`Budget`].
    ///
    /// # Errors
    /// There is no such scope, or the wake-ups cannot be traced here. Other parts that cannot be are in
    /// [`Snapshot::missing`].
    pub fn start(scope: &Scope, parts: &Parts) -> Result<Self, TraceError> {
        Self::start_within(Budget::default(), scope, parts)
    }

    /// As [`Tracer::start`], with a budget of the caller's own.
    pub fn start_within(budget: Budget, scope: &Scope, parts: &Parts) -> Result<Self, TraceError> {
        // What it has to say comes back as an error.
        libbpf_rs::set_print(None);
        let scope = scope.resolve(&Root::system())?;
        let Loaded { skel, attached, missing } = load::load(parts, &scope)?;
        look_at_all(&skel).map_err(|error| {
            let why = Why::Rejected { program: "first_look".to_owned(), detail: error };
            NotAvailable::new("the threads that run already", why)
        })?;
        times::visit(topology::online(&Root::system())?.iter());
        Ok(Self {
            skel,
            attached,
            missing,
            budget,
            meter: Meter::new(),
            cost: Cost::default(),
            started: Instant::now(),
            detached: None,
        })
    }

    /// Keeps the cost within the budget: measures it for 200 ms in each second (at once again where it was too high),
    /// follows fewer events where it is too high, then fewer kinds of them, and detaches where that does not help. To be
    /// called several times a second; most calls cost nothing.
    pub fn keep_budget(&mut self) {
        if self.detached.is_some() {
            return;
        }
        let (skel, attached) = (&self.skel, &self.attached);
        let time = |name| program(skel.object(), name).map(|p| run_time(&p)).unwrap_or_default();
        let programs =
            || attached.iter().map(|(p, _)| (p.name, time(p.name))).map(|(n, (t, c))| (n, t, c)).collect();
        let empty = || {
            let (before, runs) = time(EMPTY);
            if let Some(nothing) = program(skel.object(), EMPTY) {
                // One that fails is not counted either.
                (0..EMPTY_RUNS).for_each(|_| drop(nothing.test_run(ProgramInput::default())));
            }
            let (after, all_runs) = time(EMPTY);
            let runs = u32::try_from(all_runs.saturating_sub(runs)).unwrap_or(u32::MAX);
            after.saturating_sub(before).checked_div(runs).unwrap_or_default()
        };
        let Some(cost) = self.meter.step(programs, empty) else { return };
        let verdict = self.budget.judge(cost.share, self.shift());
        self.cost = cost;
        let before = (self.shift(), self.attached.len());
        match verdict {
            Verdict::Sample(shift) => self.set_shift(shift),
            Verdict::Shed => self.shed(),
            Verdict::Detach => self.detach(),
        }
        if self.cost.share > self.budget.sample_above && before != (self.shift(), self.attached.len()) {
            self.meter.hurry();
        }
    }

    /// What tracing cost when it was last measured; nothing yet in the first 200 ms.
    pub fn cost(&self) -> &Cost {
        &self.cost
    }

    /// Whether it still traces; false once that had cost too much.
    pub fn is_attached(&self) -> bool {
        self.detached.is_none()
    }

    /// What cannot be traced here, or no longer.
    pub fn missing(&self) -> &[NotAvailable] {
        &self.missing
    }

    /// What was counted up to now. A millisecond or two; it grows with threads' names and edges.
    ///
    /// # Errors
    /// The maps or the list of vCPUs cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, TraceError> {
        let online = topology::online(&Root::system())?;
        let maps = &self.skel.maps;
        let maps = Maps {
            hists: &maps.hists,
            idles: &maps.idles,
            counters: &maps.counters,
            threads: &maps.threads,
            edges: &maps.edges,
            names: &maps.names,
            spots: &maps.spots,
            next_name: maps.data_data.as_deref().map_or(0, |data| data.next_name),
        };
        let counted = maps.snapshot(online.iter()).map_err(|error| TraceError::Read(text(&error)))?;
        Ok(Snapshot {
            elapsed: self.detached.unwrap_or_else(Instant::now) - self.started,
            one_in: 1 << self.shift(),
            cost: self.cost.clone(),
            missing: self.missing.clone(),
            ..counted
        })
    }

    /// Where the online vCPUs' time went up to now; nothing once tracing has ended because it cost too much. Some
    /// microseconds per vCPU, and without [`crate::Part::Idle`] nothing is known of idle time.
    ///
    /// # Errors
    /// The map or the list of vCPUs cannot be read.
    pub fn vcpu_times(&self) -> Result<Vec<VcpuTime>, TraceError> {
        if self.detached.is_some() {
            return Ok(Vec::new());
        }
        let online = topology::online(&Root::system())?;
        times::read(&self.skel.maps.vcpus, online.iter()).map_err(|error| TraceError::Read(text(&error)))
    }

    /// Detaches the dearest of the programs that others do not need.
    fn shed(&mut self) {
        let optional = |name: &str| {
            self.attached.iter().position(|(program, _)| program.name == name && program.gives.is_some())
        };
        let dearest = self.cost.programs.iter().find_map(|(name, share)| Some((optional(name)?, *share)));
        let Some((index, share)) = dearest.filter(|(_, share)| *share > 0.0) else { return };
        let (program, link) = self.attached.swap_remove(index);
        drop(link);
        let detail =
            format!("it cost {:.1} % of the CPU time in use and was given up for the rest", 100.0 * share);
        let what = program.gives.unwrap_or(program.name);
        self.missing.push(NotAvailable::new(what, Why::TooExpensive { detail }));
    }

    fn detach(&mut self) {
        self.attached.clear();
        self.detached = Some(Instant::now());
        let detail = format!(
            "tracing cost {:.1} % of the CPU time in use although it followed only one event in {}, more than the {:.1} % \
             allowed: it has ended",
            100.0 * self.cost.share,
            1 << self.shift(),
            100.0 * self.budget.detach_above,
        );
        self.missing.push(NotAvailable::new("everything from now on", Why::TooExpensive { detail }));
    }

    fn shift(&self) -> u32 {
        self.skel.maps.bss_data.as_deref().map_or(0, |data| data.sample_shift).min(MAX_SHIFT)
    }

    fn set_shift(&mut self, shift: u32) {
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.sample_shift = shift;
        }
    }
}

/// Shows the programs every thread that is there already.
fn look_at_all(skel: &TraceSkel<'static>) -> Result<(), String> {
    let looker = program(skel.object(), "first_look").ok_or("it is not loaded")?;
    let link = looker.attach_iter_with_opts(IterOpts::None).map_err(|e| text(&e))?;
    let mut looks = Iter::new(&link).map_err(|e| text(&e))?;
    let mut nothing = [0; 256];
    loop {
        match looks.read(&mut nothing) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
