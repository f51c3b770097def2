//! What a simulation found out.

use serde::Serialize;

use super::World;
use super::entity::{CATEGORIES, Category, VcpuCounts};
use crate::ids::{Ns, Vcpu};

/// What a program did. Times are sums over its threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TaskTotals {
    /// CPU time.
    pub cpu: Ns,
    /// The user-mode part of it.
    pub user: Ns,
    /// Time that runnable threads waited for a vCPU.
    pub run_delay: Ns,
    /// Times a thread left its vCPU.
    pub switches: u64,
    /// Bytes moved by read and write calls.
    pub moved: u64,
    /// Operations done.
    pub operations: u64,
    /// Wake-ups of threads by other threads.
    pub wakes: u64,
    /// The time from their wakers' calls to their running.
    pub wake_ns: Ns,
    /// Runs to the end.
    pub runs: u64,
    /// When it ended.
    pub finished: Option<Ns>,
}

/// A program's part of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskReport {
    /// Its name.
    pub name: String,
    /// What it did.
    #[serde(flatten)]
    pub totals: TaskTotals,
}

/// A vCPU's part of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VcpuReport {
    /// Where its time went, by [`Category`].
    pub time: [Ns; CATEGORIES],
    /// What happened to it.
    #[serde(flatten)]
    pub counts: VcpuCounts,
}

/// A VM's part of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VmReport {
    /// Its name.
    pub name: String,
    /// Its vCPUs.
    pub vcpus: Vec<VcpuReport>,
    /// Its programs.
    pub tasks: Vec<TaskReport>,
}

/// A pCPU's part of the report. The four add up to the elapsed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PcpuReport {
    /// It ran vCPUs.
    pub guest: Ns,
    /// It switched between them.
    pub overhead: Ns,
    /// It polled for vCPUs that had halted.
    pub polling: Ns,
    /// It was idle.
    pub idle: Ns,
}

/// What a simulation found out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// How it ended.
    pub end: String,
    /// Simulated time.
    pub elapsed: Ns,
    /// Events handled.
    pub events: u64,
    /// Depends on every event: equal for equal runs.
    pub digest: String,
    /// The VMs.
    pub vms: Vec<VmReport>,
    /// The pCPUs.
    pub pcpus: Vec<PcpuReport>,
}

impl VmReport {
    /// Time of all vCPUs in a category.
    pub fn time(&self, category: Category) -> Ns {
        self.vcpus.iter().map(|v| v.time[category as usize]).sum()
    }

    /// Share (0..=1) of the vCPUs' time in a category.
    pub fn share(&self, category: Category) -> f64 {
        let whole: Ns = self.vcpus.iter().flat_map(|v| v.time).sum();
        if whole == 0 { 0.0 } else { self.time(category) as f64 / whole as f64 }
    }

    /// CPU time that the host spent for the VM: whatever its vCPUs executed, and polling for them.
    pub fn host_cpu(&self) -> Ns {
        let idle = [Category::Halted, Category::Waking, Category::Steal].map(|c| self.time(c));
        self.vcpus.iter().flat_map(|v| v.time).sum::<Ns>() - idle.iter().sum::<Ns>()
    }

    /// The sum of a count over the vCPUs.
    pub fn count(&self, of: impl Fn(&VcpuCounts) -> u64) -> u64 {
        self.vcpus.iter().map(|v| of(&v.counts)).sum()
    }

    /// Idle periods that ended in a halt, per second and vCPU.
    pub fn halts_per_s(&self, elapsed: Ns) -> f64 {
        let seconds = elapsed as f64 / 1e9 * self.vcpus.len() as f64;
        if seconds > 0.0 { self.count(|c| c.halts) as f64 / seconds } else { 0.0 }
    }

    /// When the last program that ends had ended, or the operations of the first one.
    pub fn finished(&self) -> Option<Ns> {
        self.tasks.iter().filter_map(|t| t.totals.finished).max()
    }
}

impl Report {
    /// Electrical energy in joules by a linear model: `busy_w` watts for a pCPU that does anything, `idle_w` for one
    /// that is idle in C1. The model's parameters are assumptions; compare its results to each other only.
    pub fn energy(&self, busy_w: f64, idle_w: f64) -> f64 {
        let of = |p: &PcpuReport| {
            ((p.guest + p.overhead + p.polling) as f64 * busy_w + p.idle as f64 * idle_w) / 1e9
        };
        self.pcpus.iter().map(of).sum()
    }
}

impl World {
    /// What was found out of one vCPU, up to when it was settled.
    pub(super) fn vcpu_report(&self, v: Vcpu) -> VcpuReport {
        let counts = VcpuCounts { pause_exits: self.pause_exits(v), ..self.v(v).counts };
        VcpuReport { time: self.v(v).time, counts }
    }

    /// What was found out so far.
    pub fn report(&mut self) -> Report {
        self.settle_all();
        let vms = self.vms.iter().enumerate().map(|(index, vm)| VmReport {
            name: vm.name.clone(),
            vcpus: (vm.first..vm.first + vm.vcpus).map(|v| self.vcpu_report(Vcpu(v))).collect(),
            tasks: self
                .tasks
                .iter()
                .filter(|t| t.vm.index() == index)
                .map(|t| TaskReport { name: t.name.clone(), totals: t.totals })
                .collect(),
        });
        let pcpu = |p: &super::PcpuData| PcpuReport {
            guest: p.guest,
            overhead: p.overhead,
            polling: p.polling,
            idle: p.idle,
        };
        Report {
            end: self.end.as_ref().map_or_else(|| "running".to_owned(), ToString::to_string),
            elapsed: self.now,
            events: self.events,
            digest: format!("{:016x}", self.digest),
            vms: vms.collect(),
            pcpus: self.pcpus.iter().map(pcpu).collect(),
        }
    }
}

impl World {
    /// By VM: its number, name and vCPUs.
    pub(crate) fn tracks(&self) -> impl Iterator<Item = (usize, String, u32)> + '_ {
        self.vms.iter().enumerate().map(|(index, vm)| (index, vm.name.clone(), vm.vcpus))
    }

    /// The VM of a vCPU and its number there.
    pub(crate) fn track_of(&self, v: Vcpu) -> (usize, u32) {
        let vcpu = self.v(v);
        (vcpu.vm.index(), vcpu.cpu)
    }
}
