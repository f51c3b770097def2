//! The machine of the ATC'14 paper's §7 as a simulation: two sockets with 8 cores each, VMs with up to 16
//! vCPUs, kernels without halt polling in the hypervisor (Linux 3.9).

use std::time::Duration;

use gleaner_engine::Journal;
use gleaner_policy::{Method, Mode, PolicyConfig};

use crate::cost::Costs;
use crate::driver::govern;
use crate::ids::Ns;
use crate::library::{self, Parameters};
use crate::program::Program;
use crate::spec::{HostSpec, PauseLoops, Spec, VmSpec};
use crate::world::{Report, World};

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Bare metal.
    Native,
    /// A VM.
    Vm,
    /// A VM with Gleaner.
    Gleaner,
    /// A VM with Gleaner's strategy `paper`.
    GleanerPaper,
}

impl Side {
    /// How Gleaner decides there; `None` without it.
    const fn mode(self) -> Option<Mode> {
        match self {
            Self::Native | Self::Vm => None,
            Self::Gleaner => Some(Mode::Adaptive),
            Self::GleanerPaper => Some(Mode::Paper),
        }
    }
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// Name of the program.
    pub program: &'static str,
    /// Number of cores, vCPUs and threads.
    pub cpus: u32,
    /// Where the program runs.
    pub side: Side,
    /// Program that a second VM of the same size repeats.
    pub beside: Option<&'static str>,
    /// CPU time of the program's threads, excluding waits.
    pub work: Ns,
}

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Run time of the program, in seconds.
    pub seconds: f64,
    /// Operations per second of the co-runner.
    pub beside_rate: f64,
    /// Halts per second and vCPU.
    pub halts_per_s: f64,
    /// Energy in joules, based on [`BUSY_W`] and [`IDLE_W`].
    pub joules: f64,
}

/// Power of a busy core in watts: assumed, an eighth of a Xeon E5-2665's 115 W plus its share of the machine.
pub const BUSY_W: f64 = 15.0;
/// Power of a core idling in C1, in watts: assumed.
pub const IDLE_W: f64 = 7.0;

fn host(cpus: u32) -> HostSpec {
    let (sockets, cores) = if cpus > 8 { (2, cpus / 2) } else { (1, cpus) };
    // How a program's memory is spread over the sockets is unknown; the papers' slowdowns are ratios.
    HostSpec { sockets, cores, numa_speed: 1.0, pause_loops: PauseLoops::Early, ..HostSpec::default() }
}

fn vm(name: &str, cpus: u32, side: Side) -> VmSpec {
    // Kernels of that time include idle vCPUs in shootdowns.
    // Each VM is one scheduling group of 1,024 shares, as by libvirt's cgroups and Ubuntu 12.04's autogroups.
    let shares = (1024 / u64::from(cpus)).max(1);
    let new = |costs| VmSpec { lazy_tlb: true, shares, ..VmSpec::new(name, cpus, costs) };
    match side {
        Side::Native => VmSpec { pinned: true, ple: false, ..new(Costs::ATC14_NATIVE) },
        Side::Vm | Side::Gleaner | Side::GleanerPaper => new(Costs::ATC14_VM),
    }
}

impl Trial {
    /// A program on dedicated hardware.
    pub const fn alone(program: &'static str, cpus: u32, side: Side, work: Ns) -> Self {
        Self { program, cpus, side, beside: None, work }
    }

    /// The same, beside another VM.
    #[must_use]
    pub const fn beside(mut self, other: &'static str) -> Self {
        self.beside = Some(other);
        self
    }

    /// Simulates the run; `None` if it does not finish.
    pub fn run(&self) -> Option<Timing> {
        let parameters = Parameters { threads: self.cpus, work: self.work, grain: 0 };
        self.run_program(library::make(self.program, parameters, self.cpus)?)
    }

    /// Median run time over `runs` seeds, in seconds. Beside another VM, a program that blocks often is
    /// either fast or slow for long periods: its vCPUs' weight decides whether they preempt on wake-up.
    pub fn median_seconds(&self, runs: u64) -> Option<f64> {
        let parameters = Parameters { threads: self.cpus, work: self.work, grain: 0 };
        let program = library::make(self.program, parameters, self.cpus)?;
        let times = (1..=runs).map(|seed| Some(self.run_seeded(program.clone(), seed)?.seconds));
        let mut times: Vec<f64> = times.collect::<Option<_>>()?;
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    }

    /// Runs another program in place of its own.
    pub fn run_program(&self, program: Program) -> Option<Timing> {
        self.run_seeded(program, 1)
    }

    fn run_seeded(&self, program: Program, seed: u64) -> Option<Timing> {
        let mut vms = vec![vm("vm1", self.cpus, self.side).running(program)];
        if let Some(other) = self.beside {
            let endless = Parameters { threads: self.cpus, work: 0, grain: 0 };
            // Does not delay the end, although it never ends.
            vms.push(vm("vm2", self.cpus, Side::Vm).repeating(library::make(other, endless, self.cpus)?));
        }
        let world = World::new(&Spec { seed, ..Spec::new(host(self.cpus), vms) }).ok()?;
        let mut world = match self.side.mode() {
            Some(mode) => governed(world, mode)?,
            None => world,
        };
        world.run();
        timing(&world.report())
    }
}

fn governed(world: World, mode: Mode) -> Option<World> {
    let vm = world.vm_named("vm1")?;
    let config = PolicyConfig {
        mode,
        // The paper's own method (§6): yield threads of the lowest priority.
        method: Method::Yield,
        wake_cost: Duration::from_nanos(Costs::ATC14_VM.wake()[2]),
        ..PolicyConfig::default()
    };
    govern(world, vm, config, false, &mut Journal::disabled()).ok().map(|(world, _)| world)
}

fn timing(report: &Report) -> Option<Timing> {
    let finished = report.vms[0].finished()?;
    let seconds = finished as f64 / 1e9;
    let beside = report.vms.get(1).map_or(0, |vm| vm.tasks[0].totals.operations);
    Some(Timing {
        seconds,
        beside_rate: beside as f64 / seconds,
        halts_per_s: report.vms[0].halts_per_s(finished),
        joules: report.energy(BUSY_W, IDLE_W),
    })
}
