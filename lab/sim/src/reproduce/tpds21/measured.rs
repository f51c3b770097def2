//! One run of the study.

use crate::cost::Costs;
use crate::ids::Ns;
use crate::world::{Category, Report, VcpuCounts, VmReport};

/// Result of a run. Times are in seconds, and per instance of the benchmark.
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
    /// Part of `cycles`: pause-loop exits.
    pub(super) pauses: f64,
    /// Part of `cycles`: user mode without spinning.
    pub(super) user: f64,
    /// Part of `cycles`: spinning in user mode.
    pub(super) user_spin: f64,
    /// Part of `cycles`: waiting for shootdowns to be acknowledged.
    pub(super) tlb_spin: f64,
    /// Part of `cycles`: spinning for wait queues' spinlocks.
    pub(super) lock_spin: f64,
    /// Pause-loop exits.
    pub(super) pause_exits: f64,
    /// Shootdown interrupts.
    pub(super) flushes: f64,
    /// Halts for which the hypervisor polled: successfully, and in vain.
    pub(super) polls: (f64, f64),
    /// Halts.
    pub(super) halts: f64,
    /// Idle periods.
    pub(super) idle_periods: f64,
    /// Time that vCPUs were halted, polled for or not.
    pub(super) halted: f64,
    /// Execution time of each vCPU of the first VM.
    pub(super) by_cpu: Vec<f64>,
}

impl Measured {
    /// With what interrupts and exits cost there; `None` if an instance did not end.
    pub(super) fn of(report: &Report, costs: Costs) -> Option<Self> {
        let ends: Vec<Option<Ns>> =
            report.vms.iter().flat_map(|vm| &vm.tasks).map(|t| t.totals.finished).collect();
        let ends: Vec<Ns> = ends.into_iter().collect::<Option<_>>()?;
        let instances = ends.len() as f64;
        let seconds = |ns: Ns| ns as f64 / 1e9 / instances;
        let time = |categories: &[Category]| {
            seconds(report.vms.iter().map(|vm| categories.iter().map(|c| vm.time(*c)).sum::<Ns>()).sum())
        };
        let count =
            |of: fn(&VcpuCounts) -> u64| -> u64 { report.vms.iter().map(|vm: &VmReport| vm.count(of)).sum() };
        let each = |of: fn(&VcpuCounts) -> u64| count(of) as f64 / instances;
        let [polling, overhead, guest] = report
            .pcpus
            .iter()
            .fold([0, 0, 0], |sum: [Ns; 3], p| [sum[0] + p.polling, sum[1] + p.overhead, sum[2] + p.guest]);
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
            pauses: seconds(count(|c| c.pause_exits) * costs.pause_exit),
            user: time(&[Category::User]),
            user_spin: time(&[Category::UserSpin]),
            tlb_spin: time(&[Category::TlbSpin]),
            lock_spin: time(&[Category::LockSpin]),
            pause_exits: each(|c| c.pause_exits),
            flushes: each(|c| c.flush_ipis),
            polls: (each(|c| c.host_polls_won), each(|c| c.host_polls_lost)),
            halts: each(|c| c.halts),
            idle_periods: each(|c| c.idle_periods),
            halted: time(&[Category::Halted, Category::HostPoll]),
            by_cpu: report.vms[0].vcpus.iter().map(|v| executed(&v.time)).collect(),
        })
    }

    /// Part of `cycles`: blocking, by what it makes the host do.
    pub(super) fn blocking(&self) -> f64 {
        self.polling + self.scheduling + self.reschedule + self.tick
    }

    /// Part of `cycles`: everything that the host does.
    pub(super) fn host(&self) -> f64 {
        self.blocking() + self.shootdown + self.pauses
    }

    /// Part of `cycles`: spinning in the kernel.
    pub(super) fn kernel_spin(&self) -> f64 {
        self.tlb_spin + self.lock_spin
    }
}
