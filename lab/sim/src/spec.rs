//! Description of the machine to simulate.

use gleaner_coordination::{UrgentConfig, VcpuPlacement};
use gleaner_policy::Method;
use serde::Deserialize;

use crate::coscheduling::Coscheduling;
use crate::cost::Costs;
use crate::directed_yield::DirectedYield;
use crate::ids::Ns;
use crate::program::{Program, ProgramError};
use crate::sched::Fair;

/// Which interrupts make vCPUs urgent, and for how long (ASPLOS'13 §3.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrgentRules {
    /// What a host can know from the interrupts that are sent.
    pub on_send: UrgentConfig,
    /// Early delayed preemption (§4.1.1): Resched-DP starts at the first of the accesses to the APIC that send an
    /// interrupt. Which interrupt that will be is not known then, so it is delayed for all of them.
    pub early: bool,
}

impl UrgentRules {
    /// No vCPU is ever urgent.
    pub const OFF: Self = Self { on_send: UrgentConfig::OFF, early: false };

    /// The time that is out of range, with its name and what is possible.
    fn wrong_time(&self) -> Option<String> {
        let rules = &self.on_send;
        [
            ("resched_dp", rules.resched_dp_ns, 0),
            ("resched_co", rules.resched_co_ns, 0),
            ("slice", rules.slice_ns, MIN_URGENT_SLICE),
            ("allowance", rules.allowance_ns, 0),
        ]
        .into_iter()
        .find(|(_, ns, least)| !(*least..=MAX_URGENT_TIME).contains(ns))
        .map(|(name, ns, _)| format!("urgent.{name} is {ns} ns"))
    }
}

impl From<UrgentConfig> for UrgentRules {
    fn from(on_send: UrgentConfig) -> Self {
        Self { on_send, early: false }
    }
}

/// The physical machine and its hypervisor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostSpec {
    /// Sockets; each is a NUMA node.
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Hardware threads per core: 1 or 2.
    pub smt: u32,
    /// Speed (0..=1) of each of a core's two hardware threads while both are busy.
    pub smt_speed: f64,
    /// Speed (0..=1) of a vCPU that runs on another socket than its VM's memory.
    pub numa_speed: f64,
    /// Parameters of the host scheduler.
    pub fair: Fair,
    /// Placement of woken vCPUs.
    pub placement: VcpuPlacement,
    /// Interrupts that make a vCPU urgent, in VMs without rules of their own.
    pub urgent: UrgentRules,
    /// How a pause-loop exit chooses the vCPU to yield to.
    pub yielding: DirectedYield,
    /// Whether, and how strictly, the vCPUs of a VM run together.
    pub cosched: Coscheduling,
    /// Interval of load balancing. A pCPU that becomes idle pulls at once if its idle periods are long.
    pub balance_every: Ns,
    /// Period of the scheduler tick, which ends slices.
    pub tick: Ns,
    /// How KVM handles pause-loop exits.
    pub pause_loops: PauseLoops,
}

/// How KVM handles pause-loop exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PauseLoops {
    /// The window is fixed. Any runnable sibling is eligible, even one that was just woken or that yielded
    /// itself (before Linux 3.6).
    Blind,
    /// A sibling that yielded itself is skipped every other time (Linux 3.6 to 3.9).
    Early,
    /// Only preempted siblings are eligible, in kernel or user mode (Linux 3.10 to 3.16).
    Preempted,
    /// The window grows with each exit until the vCPU is rescheduled (Linux 3.17), and only siblings
    /// preempted in kernel mode are eligible (4.14).
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
            urgent: UrgentRules::OFF,
            yielding: DirectedYield::RoundRobin,
            cosched: Coscheduling::None,
            balance_every: 16_000_000,
            tick: 4_000_000,
            pause_loops: PauseLoops::Late,
        }
    }
}

impl HostSpec {
    /// Number of pCPUs; saturates at [`u32::MAX`], which [`Spec::check`] refuses.
    pub fn pcpus(&self) -> u32 {
        self.sockets.saturating_mul(self.cores).saturating_mul(self.smt)
    }
}

/// What idle vCPUs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleMode {
    /// The retention method.
    pub method: Method,
    /// Longest retention of an idle period.
    pub limit: Ns,
}

impl IdleMode {
    /// Halt at once.
    pub const HALT: Self = Self { method: Method::Halt, limit: 0 };
}

/// So much CPU time in each period (control groups: `cpu.max`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// CPU time of all threads together, at least 1 ms.
    pub runtime: Ns,
    /// Length of a period, 1 ms to 1 s.
    pub period: Ns,
}

/// A program in a VM.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSpec {
    /// The program to run.
    pub program: Program,
    /// Whether it restarts when it ends; the simulation then does not wait for it.
    pub looping: bool,
}

/// A virtual machine.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Debug, Clone, PartialEq)]
pub struct VmSpec {
    /// Name in reports and scenario files.
    pub name: String,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Cost table.
    pub costs: Costs,
    /// Parameters of the guest scheduler.
    pub fair: Fair,
    /// Weight against other VMs, divided among the vCPUs that are awake; 1024 is normal.
    pub shares: u64,
    /// Whether vCPU i stays on pCPU i.
    pub pinned: bool,
    /// What idle vCPUs do.
    pub idle: IdleMode,
    /// Upper limit of the hypervisor's halt polling (`halt_poll_ns`); 0 as before Linux 4.0.
    pub halt_poll_max: Ns,
    /// Whether TLB shootdowns leave out preempted vCPUs.
    pub pv_tlb: bool,
    /// Whether kernel spinlocks skip preempted waiters (paravirtual spinlocks).
    pub pv_lock: bool,
    /// Whether wakers release a wait queue's spinlock before waking anybody, as in Linux since 4.2.
    pub wake_queue: bool,
    /// Whether a broadcast wakes one waiter and moves the others to the mutex's queue (`futex_requeue`), as
    /// in glibc before 2.25; since then it wakes all.
    pub requeue: bool,
    /// Whether an idle vCPU takes part in the first shootdown after it became idle, as in Linux before 4.14
    /// (before 4.20 on processors without PCIDs).
    pub lazy_tlb: bool,
    /// Whether the guest treats a halted vCPU as preempted when it searches for an idle one, as with KVM's
    /// steal time (`kvm_steal_time_set_preempted`, since Linux 4.10).
    pub halted_is_preempted: bool,
    /// Whether the hardware detects spinning in the kernel (pause-loop exiting).
    pub ple: bool,
    /// Interrupts that make its vCPUs urgent; `None`: as the host's rules say.
    pub urgent: Option<UrgentRules>,
    /// The CPU time that its programs may use together; `None`: as much as there is.
    pub quota: Option<Quota>,
    /// Programs that run in it.
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
            urgent: None,
            quota: None,
            tasks: Vec::new(),
        }
    }

    /// Checks the number of vCPUs, before programs are built for them.
    ///
    /// # Errors
    /// It has none, or too many.
    pub(crate) fn check_vcpus(&self) -> Result<(), SpecError> {
        if (1..=MAX_CPUS).contains(&self.vcpus) {
            return Ok(());
        }
        let what = format!("it has {} vCPUs", self.vcpus);
        Err(SpecError::Vm { vm: self.name.clone(), what, remedy: "give it between 1 and 65536" })
    }

    /// Adds a program that runs once.
    #[must_use]
    pub fn running(mut self, program: Program) -> Self {
        self.tasks.push(TaskSpec { program, looping: false });
        self
    }

    /// Adds a program that restarts when it ends.
    #[must_use]
    pub fn repeating(mut self, program: Program) -> Self {
        self.tasks.push(TaskSpec { program, looping: true });
        self
    }
}

/// A complete simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The physical machine.
    pub host: HostSpec,
    /// VMs on the host.
    pub vms: Vec<VmSpec>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// End of simulated time.
    pub time_limit: Ns,
    /// Maximum number of events.
    pub event_limit: u64,
}

impl Spec {
    /// Simulates `vms` on `host` for at most an hour of simulated time and 10^10 events.
    pub fn new(host: HostSpec, vms: Vec<VmSpec>) -> Self {
        Self { host, vms, seed: 1, time_limit: 3_600_000_000_000, event_limit: 10_000_000_000 }
    }
}

/// Why a machine cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// No pCPU, or more than two threads per core.
    #[error("the host cannot be built: {what}; {remedy}")]
    Host {
        /// What is wrong.
        what: String,
        /// How to fix it.
        remedy: &'static str,
    },
    /// An impossible VM.
    #[error("VM `{vm}` cannot be built: {what}; {remedy}")]
    Vm {
        /// Name of the VM.
        vm: String,
        /// What is wrong.
        what: String,
        /// How to fix it.
        remedy: &'static str,
    },
    /// An invalid program.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Maximum number of pCPUs, and of vCPUs of all VMs together.
const MAX_CPUS: u32 = 65_536;
/// Maximum number of threads of all programs together: twice Linux's default (`kernel.pid_max`).
pub(crate) const MAX_THREADS: u32 = 65_536;
/// Maximum shares of a VM: those of a control group (kernel: `MAX_SHARES`).
const MAX_SHARES: u64 = 1 << 18;
/// Shortest quota and period (kernel: `min_cfs_quota_period`).
const MIN_QUOTA: Ns = 1_000_000;
/// Longest period of a quota (kernel: `max_cfs_quota_period`).
const MAX_QUOTA_PERIOD: Ns = 1_000_000_000;
/// Shortest slice of an urgent vCPU: a switch takes longer than that.
const MIN_URGENT_SLICE: Ns = 1_000;
/// Longest of the urgency rules' times: anything beyond is a typo.
const MAX_URGENT_TIME: Ns = 1_000_000_000;
/// What they may be.
const URGENT_TIMES: &str = "slices last 1 us to 1 s, delay and allowance 1 s at most";
/// Maximum cost of an operation: a second, far beyond any machine.
const MAX_COST: Ns = 1_000_000_000;

impl Spec {
    /// Checks that the machine can be built.
    ///
    /// # Errors
    /// The first problem found.
    pub fn check(&self) -> Result<(), SpecError> {
        let host = |what: String, remedy| Err(SpecError::Host { what, remedy });
        let h = &self.host;
        // The product of three 32-bit numbers fits.
        let pcpus = u128::from(h.sockets) * u128::from(h.cores) * u128::from(h.smt);
        if pcpus == 0 || pcpus > MAX_CPUS.into() {
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
        if let Some(what) = h.urgent.wrong_time() {
            return host(what, URGENT_TIMES);
        }
        if self.vms.is_empty() {
            return host("there is no VM on it".to_owned(), "describe at least one");
        }
        self.vms.iter().try_for_each(|vm| self.check_vm(vm))?;
        let vcpus: u64 = self.vms.iter().map(|vm| u64::from(vm.vcpus)).sum();
        if vcpus > MAX_CPUS.into() {
            return host(format!("its VMs have {vcpus} vCPUs together"), "65536 are possible");
        }
        let programs = self.vms.iter().flat_map(|vm| &vm.tasks).map(|task| &task.program);
        let threads: u64 = programs.map(|program| u64::from(program.threads())).sum();
        if threads > MAX_THREADS.into() {
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
        if vm.shares > MAX_SHARES {
            return wrong(
                format!("it has {} shares", vm.shares),
                "1024 is the normal weight, 262144 the most",
            );
        }
        if let Some(Quota { runtime, period }) = vm.quota {
            if runtime < MIN_QUOTA {
                return wrong(format!("its quota is {runtime} ns"), "it must be 1 ms at least");
            }
            if !(MIN_QUOTA..=MAX_QUOTA_PERIOD).contains(&period) {
                return wrong(
                    format!("the period of its quota is {period} ns"),
                    "it must lie between 1 ms and 1 s",
                );
            }
        }
        if let Some(what) = vm.urgent.and_then(|rules| rules.wrong_time()) {
            return wrong(what, URGENT_TIMES);
        }
        if let Some((name, ns)) = vm.costs.longer_than(MAX_COST) {
            return wrong(format!("{name} costs {ns} ns"), "an operation takes a second at most");
        }
        if vm.tasks.is_empty() {
            return wrong("nothing runs in it".to_owned(), "give it a program");
        }
        Ok(vm.tasks.iter().try_for_each(|task| task.program.check())?)
    }
}
