//! The machine of §4: cores without SMT, VMs whose vCPUs are pinned without stacking, Linux 4.15 everywhere.

use super::programs;
use crate::cost::Costs;
use crate::ids::Ns;
use crate::spec::{HostSpec, Spec, VmSpec};
use crate::world::{Category, Report, VmReport, World};

/// Simulations that have not ended by then are discarded.
const TIME_LIMIT: Ns = 120_000_000_000;
const EVENT_LIMIT: u64 = 400_000_000;

/// `halt_poll_ns` of Linux 4.15.
const HALT_POLL: Ns = 200_000;

/// One run.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setup {
    pub(super) program: &'static str,
    /// Number of cores, vCPUs and threads.
    pub(super) cpus: u32,
    /// Whether it runs in VMs.
    pub(super) virtual_: bool,
    /// Whether two instances run: in two VMs, or both in one system.
    pub(super) pair: bool,
    /// Whether the hypervisor polls before it takes a halted vCPU off its core.
    pub(super) halt_polling: bool,
    /// Whether pause-loop exiting is on.
    pub(super) ple: bool,
    /// Whether shootdowns leave out preempted vCPUs (Linux 4.16, §8).
    pub(super) pv_tlb: bool,
    /// Whether the systems are those of "half a decade ago" (§6.2.3): the ATC'14 paper's.
    pub(super) old: bool,
    /// Whether volrend's spinning barrier is replaced by a blocking one (§7.1.1).
    pub(super) blocking: bool,
}

impl Setup {
    pub(super) const fn native(program: &'static str, cpus: u32, pair: bool) -> Self {
        Self {
            program,
            cpus,
            virtual_: false,
            pair,
            halt_polling: false,
            ple: false,
            pv_tlb: false,
            old: false,
            blocking: false,
        }
    }

    pub(super) const fn vm(program: &'static str, cpus: u32, pair: bool) -> Self {
        Self { virtual_: true, halt_polling: true, ple: true, ..Self::native(program, cpus, pair) }
    }

    pub(super) fn run(&self) -> Option<Measured> {
        let mut spec = Spec::new(self.host(), self.vms()?);
        (spec.time_limit, spec.event_limit) = (TIME_LIMIT, EVENT_LIMIT);
        let mut world = World::new(&spec).ok()?;
        world.run();
        Measured::of(&world.report(), self.costs())
    }

    const fn costs(&self) -> Costs {
        match (self.virtual_, self.old) {
            (false, _) => Costs::ATC14_NATIVE,
            (true, false) => Costs::TPDS21_VM,
            (true, true) => Costs::ATC14_VM,
        }
    }

    /// 20 cores per socket; 32 and 64 cores are spread evenly over 2 and 4 sockets (§4.1).
    fn host(&self) -> HostSpec {
        let sockets = self.cpus.div_ceil(16);
        // How a program's memory is spread is unknown, as is how much it matters to each program.
        HostSpec { sockets, cores: self.cpus / sockets, numa_speed: 1.0, ..HostSpec::default() }
    }

    fn vms(&self) -> Option<Vec<VmSpec>> {
        let program = if self.old {
            programs::of_the_library(self.program, self.cpus)?
        } else {
            programs::make(self.program, self.cpus, self.blocking)?
        };
        let vm = |name: &str| VmSpec {
            pinned: true,
            // Idle vCPUs drop the address space since Linux 4.14 on processors with PCIDs, like these.
            lazy_tlb: self.old,
            pv_lock: !self.old,
            wake_queue: !self.old,
            // Ubuntu 18.04 has glibc 2.27.
            requeue: self.old,
            ple: self.ple,
            pv_tlb: self.pv_tlb,
            halt_poll_max: if self.halt_polling { HALT_POLL } else { 0 },
            ..VmSpec::new(name, self.cpus, self.costs())
        };
        if self.virtual_ {
            let names = if self.pair { &["a", "b"][..] } else { &["a"] };
            return Some(names.iter().map(|n| vm(n).running(program.clone())).collect());
        }
        let system = vm("native").running(program.clone());
        Some(vec![if self.pair { system.running(program) } else { system }])
    }
}

/// Result of a run. Times are in seconds, and per instance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// Mean run time of the instances.
    pub(super) time: f64,
    /// Core time spent on it: C in §3.1.
    pub(super) cycles: f64,
    /// Part of `cycles`: polling in the hypervisor.
    pub(super) polling: f64,
    /// Part of `cycles`: the hypervisor's scheduler.
    pub(super) scheduling: f64,
    /// Part of `cycles`: exits and handlers of reschedule interrupts.
    pub(super) reschedule: f64,
    /// Part of `cycles`: exits and handlers of shootdown interrupts.
    pub(super) shootdown: f64,
    /// Part of `cycles`: exits that stop the tick before idling and restart it afterwards.
    pub(super) tick: f64,
    /// Part of `cycles`: user mode without spinning.
    pub(super) user: f64,
    /// Part of `cycles`: spinning in user mode.
    pub(super) user_spin: f64,
    /// Part of `cycles`: waiting for shootdowns to be acknowledged.
    pub(super) tlb_spin: f64,
    /// Part of `cycles`: spinning for wait queues' spinlocks.
    pub(super) lock_spin: f64,
    pub(super) pause_exits: f64,
    /// Halts for which the hypervisor polled: successfully, and in vain.
    pub(super) polls: (u64, u64),
    pub(super) halts: f64,
    /// Execution time of each vCPU of the first VM.
    pub(super) by_cpu: Vec<f64>,
}

impl Measured {
    fn of(report: &Report, costs: Costs) -> Option<Self> {
        let ends: Vec<Option<Ns>> =
            report.vms.iter().flat_map(|vm| &vm.tasks).map(|t| t.totals.finished).collect();
        let ends: Vec<Ns> = ends.into_iter().collect::<Option<_>>()?;
        let instances = ends.len() as f64;
        let seconds = |ns: Ns| ns as f64 / 1e9 / instances;
        let time = |categories: &[Category]| {
            seconds(report.vms.iter().map(|vm| categories.iter().map(|c| vm.time(*c)).sum::<Ns>()).sum())
        };
        let count = |of: fn(&crate::VcpuCounts) -> u64| -> u64 {
            report.vms.iter().map(|vm: &VmReport| vm.count(of)).sum()
        };
        let polling: Ns = report.pcpus.iter().map(|p| p.polling).sum();
        let overhead: Ns = report.pcpus.iter().map(|p| p.overhead).sum();
        let guest: Ns = report.pcpus.iter().map(|p| p.guest).sum();
        let interrupt = costs.ipi_send_delay + costs.ipi_send_rest + costs.irq;
        let executed = |times: &[Ns]| {
            let waits = [Category::HostPoll, Category::Halted, Category::Waking, Category::Steal];
            let idle: Ns = waits.iter().map(|c| times[*c as usize]).sum();
            (times.iter().sum::<Ns>() - idle) as f64 / 1e9
        };
        Some(Self {
            time: ends.iter().sum::<Ns>() as f64 / 1e9 / instances,
            cycles: seconds(guest + overhead + polling),
            polling: seconds(polling),
            // Waking an idle core costs that core's time, too, even though it does nothing else.
            scheduling: seconds(overhead),
            reschedule: seconds(count(|c| c.resched_ipis) * interrupt),
            shootdown: seconds(count(|c| c.flush_ipis) * (interrupt + costs.tlb_flush)),
            // One write stops the tick and one restarts it; each is a plain exit (§6.2.1).
            tick: seconds(count(|c| c.idle_periods) * 2 * costs.pause_exit),
            user: time(&[Category::User]),
            user_spin: time(&[Category::UserSpin]),
            tlb_spin: time(&[Category::TlbSpin]),
            lock_spin: time(&[Category::LockSpin]),
            pause_exits: count(|c| c.pause_exits) as f64 / instances,
            polls: (count(|c| c.host_polls_won), count(|c| c.host_polls_lost)),
            halts: count(|c| c.halts) as f64 / instances,
            by_cpu: report.vms[0].vcpus.iter().map(|v| executed(&v.time)).collect(),
        })
    }
}
