//! The machine of §4: cores without SMT, VMs whose vCPUs are laid out so that none stack, Linux 4.15 on both sides.

use super::programs;
use crate::cost::Costs;
use crate::ids::Ns;
use crate::spec::{HostSpec, Spec, VmSpec};
use crate::world::{Category, Report, VmReport, World};

/// Simulations that are not over by then tell nothing.
const TIME_LIMIT: Ns = 120_000_000_000;
const EVENT_LIMIT: u64 = 400_000_000;

/// `halt_poll_ns` of Linux 4.15.
const HALT_POLL: Ns = 200_000;

/// One run.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setup {
    /// The program.
    pub(super) program: &'static str,
    /// Cores, vCPUs and threads.
    pub(super) cpus: u32,
    /// Whether it runs in VMs.
    pub(super) virtual_: bool,
    /// Whether there are two of it: two VMs, or twice in one system.
    pub(super) pair: bool,
    /// Whether the hypervisor polls before it takes a halted vCPU's core away.
    pub(super) halt_polling: bool,
    /// Whether the hardware notices spinning in the kernel.
    pub(super) ple: bool,
    /// Whether preempted vCPUs are left out of shootdowns (Linux 4.16, §8).
    pub(super) pv_tlb: bool,
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
            blocking: false,
        }
    }

    pub(super) const fn vm(program: &'static str, cpus: u32, pair: bool) -> Self {
        Self { virtual_: true, halt_polling: true, ple: true, ..Self::native(program, cpus, pair) }
    }

    /// Runs it.
    pub(super) fn run(&self) -> Option<Measured> {
        let mut spec = Spec::new(self.host(), self.vms()?);
        (spec.time_limit, spec.event_limit) = (TIME_LIMIT, EVENT_LIMIT);
        let mut world = World::new(&spec).ok()?;
        world.run();
        Measured::of(&world.report(), if self.virtual_ { Costs::TPDS21_VM } else { Costs::ATC14_NATIVE })
    }

    /// 20 cores a socket; 32 and 64 cores are spread equally over 2 and 4 of them (§4.1).
    fn host(&self) -> HostSpec {
        let sockets = self.cpus.div_ceil(16);
        // How a program's memory is spread is not known, nor how much it matters to each.
        HostSpec { sockets, cores: self.cpus / sockets, numa_speed: 1.0, ..HostSpec::default() }
    }

    fn vms(&self) -> Option<Vec<VmSpec>> {
        let program = programs::make(self.program, self.cpus, self.blocking)?;
        let vm = |name: &str, costs| VmSpec {
            pinned: true,
            lazy_tlb: true,
            pv_lock: true,
            wake_queue: true,
            ple: self.ple,
            pv_tlb: self.pv_tlb,
            halt_poll_max: if self.halt_polling { HALT_POLL } else { 0 },
            ..VmSpec::new(name, self.cpus, costs)
        };
        if self.virtual_ {
            let names = if self.pair { &["a", "b"][..] } else { &["a"] };
            return Some(names.iter().map(|n| vm(n, Costs::TPDS21_VM).running(program.clone())).collect());
        }
        let system = vm("native", Costs::ATC14_NATIVE).running(program.clone());
        Some(vec![if self.pair { system.running(program) } else { system }])
    }
}

/// What came of a run. Times are in seconds, and of one of two instances.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// Run time, the mean of the instances.
    pub(super) time: f64,
    /// What the cores did for it: C in §3.1.
    pub(super) cycles: f64,
    /// Part of it: the hypervisor polls.
    pub(super) polling: f64,
    /// Part of it: the hypervisor's scheduler.
    pub(super) scheduling: f64,
    /// Part of it: exits and handlers of interrupts between vCPUs for wake-ups.
    pub(super) reschedule: f64,
    /// The same for shootdowns.
    pub(super) shootdown: f64,
    /// Part of it: the tick stopped before and restarted after idling.
    pub(super) tick: f64,
    /// Part of it: user mode, without spinning.
    pub(super) user: f64,
    /// Part of it: spinning in user mode.
    pub(super) user_spin: f64,
    /// Part of it: waiting for shootdowns to be acknowledged.
    pub(super) tlb_spin: f64,
    /// Part of it: spinning for wait queues' spinlocks.
    pub(super) lock_spin: f64,
    /// Pause-loop exits.
    pub(super) pause_exits: f64,
    /// Halts for which the hypervisor polled, successfully and in vain.
    pub(super) polls: (u64, u64),
    /// Halts.
    pub(super) halts: f64,
    /// What each vCPU of the first VM executed, in its order.
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
            // Waking an idle core costs its time as well, although it does nothing else.
            scheduling: seconds(overhead),
            reschedule: seconds(count(|c| c.resched_ipis) * interrupt),
            shootdown: seconds(count(|c| c.flush_ipis) * (interrupt + costs.tlb_flush)),
            tick: seconds(count(|c| c.idle_periods) * (costs.poll_enter + costs.idle_exit)),
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
