//! What a simulation is made from.

use gleaner_policy::Method;
use gleaner_policy::host::{Coscheduling, DirectedYield, UrgentConfig, VcpuPlacement};

use crate::cost::Costs;
use crate::ids::Ns;
use crate::program::{Program, ProgramError};
use crate::sched::Fair;

/// The physical machine and its hypervisor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostSpec {
    /// Sockets; each is a NUMA node.
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Hardware threads per core: 1 or 2.
    pub smt: u32,
    /// The speed (0..=1) of each of two busy hardware threads of a core.
    pub smt_speed: f64,
    /// The speed (0..=1) of a vCPU that runs on another socket than its VM's memory is on.
    pub numa_speed: f64,
    /// The scheduler.
    pub fair: Fair,
    /// How woken vCPUs are placed.
    pub placement: VcpuPlacement,
    /// Which interrupts make a vCPU urgent.
    pub urgent: UrgentConfig,
    /// What a pause-loop exit does.
    pub yielding: DirectedYield,
    /// Whether the vCPUs of a VM are made to run together.
    pub cosched: Coscheduling,
    /// How often queues are evened out. An idle pCPU takes from others at once, if its idle periods are long.
    pub balance_every: Ns,
    /// The period of the scheduler's tick, which ends slices.
    pub tick: Ns,
    /// How KVM handles pause-loop exits.
    pub pause_loops: PauseLoops,
}

/// How KVM handles pause-loop exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseLoops {
    /// The window is fixed, and whatever sibling could run may be yielded to: the woken one that waits for a tick, and one that
    /// gave up itself (before Linux 3.6).
    Blind,
    /// Who gave up itself is passed over every other time (Linux 3.6 to 3.9).
    Early,
    /// Only siblings that were preempted may be yielded to, in the kernel or not (Linux 3.10 to 3.16).
    Preempted,
    /// The window grows with each exit until the vCPU is scheduled again (Linux 3.17), and only siblings that were preempted in
    /// the kernel may be yielded to (4.14).
    Late,
}

impl Default for HostSpec {
    fn default() -> Self {
        Self {
            sockets: 1,
            cores: 2,
            smt: 1,
            smt_speed: 0.62,
            numa_speed: 0.9,
            fair: Fair::CFS,
            placement: VcpuPlacement::Uncoordinated,
            urgent: UrgentConfig::OFF,
            yielding: DirectedYield::RoundRobin,
            cosched: Coscheduling::None,
            balance_every: 16_000_000,
            tick: 4_000_000,
            pause_loops: PauseLoops::Late,
        }
    }
}

impl HostSpec {
    /// How many pCPUs it has; [`u32::MAX`] where that is no number of 32 bits, which [`Spec::check`] refuses.
    pub fn pcpus(&self) -> u32 {
        self.sockets.saturating_mul(self.cores).saturating_mul(self.smt)
    }
}

/// What idle vCPUs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleMode {
    /// The retention method.
    pub method: Method,
    /// For how long it holds.
    pub limit: Ns,
}

impl IdleMode {
    /// Halt at once.
    pub const HALT: Self = Self { method: Method::Halt, limit: 0 };
}

/// A program in a VM.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSpec {
    /// What runs.
    pub program: Program,
    /// Whether it starts again when it ends, and nobody waits for its end.
    pub looping: bool,
}

/// A virtual machine.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Debug, Clone, PartialEq)]
pub struct VmSpec {
    /// Its name.
    pub name: String,
    /// How many vCPUs it has.
    pub vcpus: u32,
    /// What operations cost in it.
    pub costs: Costs,
    /// The guest's scheduler.
    pub fair: Fair,
    /// Its weight against other VMs; 1024 is normal. Divided among the vCPUs that are awake.
    pub shares: u64,
    /// Whether vCPU i stays on pCPU i.
    pub pinned: bool,
    /// What idle vCPUs do.
    pub idle: IdleMode,
    /// The longest that the hypervisor polls for a halted vCPU (`halt_poll_ns`); 0 as before Linux 4.0.
    pub halt_poll_max: Ns,
    /// Whether preempted vCPUs are left out of TLB shootdowns.
    pub pv_tlb: bool,
    /// Whether kernel spinlocks pass preempted waiters over (paravirtual spinlocks).
    pub pv_lock: bool,
    /// Whether wakers let a wait queue's spinlock go before they wake anybody, as in Linux since 4.2.
    pub wake_queue: bool,
    /// Whether those whom a broadcast does not wake are moved to the mutex's queue (`futex_requeue`), as by glibc before 2.25;
    /// since then it wakes all of them.
    pub requeue: bool,
    /// Whether an idle vCPU takes part in the first shootdown after it became idle, as in Linux before 4.14, and before 4.20 where
    /// processors have no PCIDs.
    pub lazy_tlb: bool,
    /// Whether the guest takes a vCPU that has halted for a preempted one when it looks for an idle one, as with KVM's steal time
    /// (`kvm_steal_time_set_preempted`, since Linux 4.10).
    pub halted_is_preempted: bool,
    /// Whether spinning in the kernel is noticed by the hardware.
    pub ple: bool,
    /// What runs in it.
    pub tasks: Vec<TaskSpec>,
}

impl VmSpec {
    /// A VM with `vcpus` vCPUs, these costs, and nothing to run.
    pub fn new(name: &str, vcpus: u32, costs: Costs) -> Self {
        Self {
            name: name.to_owned(),
            vcpus,
            costs,
            fair: Fair::CFS,
            shares: 1024,
            pinned: false,
            idle: IdleMode::HALT,
            halt_poll_max: 0,
            pv_tlb: false,
            pv_lock: false,
            wake_queue: false,
            requeue: true,
            lazy_tlb: false,
            halted_is_preempted: false,
            ple: true,
            tasks: Vec::new(),
        }
    }

    /// Whether it can have so many vCPUs. Programs are made for them, so this comes before that.
    ///
    /// # Errors
    /// It has none, or too many.
    pub(crate) fn check_vcpus(&self) -> Result<(), SpecError> {
        if (1..=MOST_CPUS).contains(&self.vcpus) {
            return Ok(());
        }
        let what = format!("it has {} vCPUs", self.vcpus);
        Err(SpecError::Vm { vm: self.name.clone(), what, remedy: "give it between 1 and 65536" })
    }

    /// Lets `program` run in it, once.
    #[must_use]
    pub fn running(mut self, program: Program) -> Self {
        self.tasks.push(TaskSpec { program, looping: false });
        self
    }

    /// Lets `program` run in it again and again.
    #[must_use]
    pub fn repeating(mut self, program: Program) -> Self {
        self.tasks.push(TaskSpec { program, looping: true });
        self
    }
}

/// Everything that a simulation needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The host.
    pub host: HostSpec,
    /// Its VMs.
    pub vms: Vec<VmSpec>,
    /// Decides everything random.
    pub seed: u64,
    /// The end of simulated time.
    pub time_limit: Ns,
    /// The most events.
    pub event_limit: u64,
}

impl Spec {
    /// A simulation of `vms` on `host`, for at most an hour of simulated time and 10^10 events.
    pub fn new(host: HostSpec, vms: Vec<VmSpec>) -> Self {
        Self { host, vms, seed: 1, time_limit: 3_600_000_000_000, event_limit: 10_000_000_000 }
    }
}

/// A machine that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// No pCPU, or more threads per core than two.
    #[error("the host cannot be built: {what}; {remedy}")]
    Host {
        /// What is wrong.
        what: String,
        /// What would be right.
        remedy: &'static str,
    },
    /// A VM that cannot be.
    #[error("VM `{vm}` cannot be built: {what}; {remedy}")]
    Vm {
        /// Its name.
        vm: String,
        /// What is wrong.
        what: String,
        /// What would be right.
        remedy: &'static str,
    },
    /// A program that cannot be.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// The most pCPUs, and the most vCPUs of all VMs together.
const MOST_CPUS: u32 = 65_536;
/// The most threads of all programs together: twice what Linux allows by default (`kernel.pid_max`).
pub(crate) const MOST_THREADS: u32 = 65_536;
/// The most shares of a VM: those of a control group (kernel: `MAX_SHARES`).
const MOST_SHARES: u64 = 1 << 18;
/// The longest cost of an operation: a second, far beyond any machine.
const LONGEST_COST: Ns = 1_000_000_000;

impl Spec {
    /// Whether it can be built.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        let host = |what: String, remedy| Err(SpecError::Host { what, remedy });
        let h = &self.host;
        // Three numbers of 32 bits cannot overflow this.
        let pcpus = u128::from(h.sockets) * u128::from(h.cores) * u128::from(h.smt);
        if pcpus == 0 || pcpus > MOST_CPUS.into() {
            return host(format!("it has {pcpus} pCPUs"), "give it between 1 and 65536");
        }
        if h.smt > 2 {
            return host(format!("{} hardware threads per core", h.smt), "1 and 2 are modelled");
        }
        for (what, speed) in [("smt_speed", h.smt_speed), ("numa_speed", h.numa_speed)] {
            if !(0.01..=1.0).contains(&speed) {
                return host(format!("{what} is {speed}"), "it must lie between 0.01 and 1");
            }
        }
        if self.vms.is_empty() {
            return host("there is no VM on it".to_owned(), "describe at least one");
        }
        self.vms.iter().try_for_each(|vm| self.check_vm(vm))?;
        let vcpus: u64 = self.vms.iter().map(|vm| u64::from(vm.vcpus)).sum();
        if vcpus > MOST_CPUS.into() {
            return host(format!("its VMs have {vcpus} vCPUs together"), "65536 are possible");
        }
        let programs = self.vms.iter().flat_map(|vm| &vm.tasks).map(|task| &task.program);
        let threads: u64 = programs.map(|program| u64::from(program.threads())).sum();
        if threads > MOST_THREADS.into() {
            return host(format!("its VMs have {threads} threads together"), "65536 are possible");
        }
        Ok(())
    }

    fn check_vm(&self, vm: &VmSpec) -> Result<(), SpecError> {
        let wrong = |what: String, remedy| Err(SpecError::Vm { vm: vm.name.clone(), what, remedy });
        vm.check_vcpus()?;
        if vm.pinned && vm.vcpus > self.host.pcpus() {
            return wrong(
                format!("{} pinned vCPUs on {} pCPUs", vm.vcpus, self.host.pcpus()),
                "a pinned vCPU needs a pCPU of its own in the VM",
            );
        }
        if vm.shares == 0 {
            return wrong("it has no shares".to_owned(), "1024 is the normal weight");
        }
        if vm.shares > MOST_SHARES {
            return wrong(
                format!("it has {} shares", vm.shares),
                "1024 is the normal weight, 262144 the most",
            );
        }
        if let Some((name, ns)) = vm.costs.longer_than(LONGEST_COST) {
            return wrong(format!("{name} costs {ns} ns"), "an operation takes a second at most");
        }
        if vm.tasks.is_empty() {
            return wrong("nothing runs in it".to_owned(), "give it a program");
        }
        Ok(vm.tasks.iter().try_for_each(|task| task.program.check())?)
    }
}
