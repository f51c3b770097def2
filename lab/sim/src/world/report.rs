//! Results of a simulation.

use serde::Serialize;

use super::World;
use super::counts::VcpuCounts;
use super::entity::{CATEGORIES, Category};
use crate::ids::{Ns, Vcpu, Vm};

/// Totals of a program, summed over its threads. Times are in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TaskTotals {
    /// CPU time.
    pub cpu: Ns,
    /// User-mode part of the CPU time.
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
    /// Total latency of these wake-ups, from the waker's call until the wakee runs.
    pub wake_ns: Ns,
    /// Completed runs.
    pub runs: u64,
    /// When it ended; `None` if it did not.
    pub finished: Option<Ns>,
}

/// Results of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskReport {
    /// Name of the program.
    pub name: String,
    /// Its totals.
    #[serde(flatten)]
    pub totals: TaskTotals,
}

/// Results of a vCPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VcpuReport {
    /// Time in each [`Category`], in ns.
    pub time: [Ns; CATEGORIES],
    /// Its event counts.
    #[serde(flatten)]
    pub counts: VcpuCounts,
}

/// Results of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VmReport {
    /// Name of the VM.
    pub name: String,
    /// By vCPU number.
    pub vcpus: Vec<VcpuReport>,
    /// Time for which the quota kept its programs from running, in ns.
    pub throttled: Ns,
    /// Its programs, in the order of the specification.
    pub tasks: Vec<TaskReport>,
}

/// Results of a pCPU, in ns. The four add up to the elapsed time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PcpuReport {
    /// Time running vCPUs.
    pub guest: Ns,
    /// Time switching between vCPUs.
    pub overhead: Ns,
    /// Time polling for halted vCPUs.
    pub polling: Ns,
    /// Idle time.
    pub idle: Ns,
}

/// Results of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// How it ended.
    pub end: String,
    /// Simulated time, in ns.
    pub elapsed: Ns,
    /// Number of events handled.
    pub events: u64,
    /// Hash of every event: equal for identical runs.
    pub digest: String,
    /// Results by VM.
    pub vms: Vec<VmReport>,
    /// Results by pCPU.
    pub pcpus: Vec<PcpuReport>,
}

impl VmReport {
    /// Total time of all vCPUs in a category, in ns.
    pub fn time(&self, category: Category) -> Ns {
        self.vcpus.iter().map(|v| v.time[category as usize]).sum()
    }

    /// Share (0..=1) of all vCPUs' time in a category.
    pub fn share(&self, category: Category) -> f64 {
        let whole: Ns = self.vcpus.iter().flat_map(|v| v.time).sum();
        if whole == 0 { 0.0 } else { self.time(category) as f64 / whole as f64 }
    }

    /// CPU time that the host spent on the VM, in ns: what its vCPUs executed, and polling for them.
    pub fn host_cpu(&self) -> Ns {
        let idle = [Category::Halted, Category::Waking, Category::Steal].map(|c| self.time(c));
        self.vcpus.iter().flat_map(|v| v.time).sum::<Ns>() - idle.iter().sum::<Ns>()
    }

    /// Sum of a counter over the vCPUs.
    pub fn count(&self, of: impl Fn(&VcpuCounts) -> u64) -> u64 {
        self.vcpus.iter().map(|v| of(&v.counts)).sum()
    }

    /// Idle periods that ended in a halt, per second and vCPU.
    pub fn halts_per_s(&self, elapsed: Ns) -> f64 {
        let seconds = elapsed as f64 / 1e9 * self.vcpus.len() as f64;
        if seconds > 0.0 { self.count(|c| c.halts) as f64 / seconds } else { 0.0 }
    }

    /// When the last program ended, among those that did; `None` if none did.
    pub fn finished(&self) -> Option<Ns> {
        self.tasks.iter().filter_map(|t| t.totals.finished).max()
    }
}

impl Report {
    /// Energy in joules by a linear model: `busy_w` watts for a busy pCPU, `idle_w` for one idle in C1. The
    /// parameters are assumptions, so compare results only with each other.
    pub fn energy(&self, busy_w: f64, idle_w: f64) -> f64 {
        let of = |p: &PcpuReport| {
            ((p.guest + p.overhead + p.polling) as f64 * busy_w + p.idle as f64 * idle_w) / 1e9
        };
        self.pcpus.iter().map(of).sum()
    }
}

impl World {
    /// Results of one vCPU until it was last settled.
    pub(super) fn vcpu_report(&self, v: Vcpu) -> VcpuReport {
        let counts = VcpuCounts { pause_exits: self.pause_exits(v), ..self.v(v).counts };
        VcpuReport { time: self.v(v).time, counts }
    }

    /// Results so far.
    pub fn report(&mut self) -> Report {
        self.settle_all();
        let vms = self.vms.iter().enumerate().map(|(index, vm)| VmReport {
            name: vm.name.clone(),
            vcpus: (vm.first..vm.first + vm.vcpus).map(|v| self.vcpu_report(Vcpu(v))).collect(),
            throttled: self.throttled(Vm::at(index)),
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
    /// Number, name and vCPU count of each VM.
    pub(crate) fn tracks(&self) -> impl Iterator<Item = (usize, String, u32)> + '_ {
        self.vms.iter().enumerate().map(|(index, vm)| (index, vm.name.clone(), vm.vcpus))
    }

    /// The VM of a vCPU, and the vCPU's number in it.
    pub(crate) fn track_of(&self, v: Vcpu) -> (usize, u32) {
        let vcpu = self.v(v);
        (vcpu.vm.index(), vcpu.cpu)
    }
}
