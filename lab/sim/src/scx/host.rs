//! What the scheduler knows of the host, and what it does at each event (`scx_gleaner.bpf.c`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_coordination::record::{Decision, Header, Task, What};
use gleaner_coordination::{Urgency, UrgentConfig};

use super::place::Wakeup;
use super::queue::Wait;

/// A host that is scheduled. Times are ns, of the host's clock or of virtual time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Host {
    pub(super) header: Arc<Header>,
    pub(super) pcpus: Vec<PcpuState>,
    pub(super) tasks: BTreeMap<Task, TaskState>,
    pub(super) vms: BTreeMap<u32, VmState>,
    /// Highest virtual time at which a task started to run in the fair order.
    pub(super) floor: u64,
    /// How many tasks were ever queued: of those with equal virtual time the first is first.
    pub(super) queued: u64,
    /// Those of the present event.
    pub(super) decisions: Vec<Decision>,
}

/// `struct task` of `state.bpf.h`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TaskState {
    pub(super) vtime: u64,
    /// Its own; of a vCPU that of its VM counts.
    pub(super) weight: u32,
    pub(super) urgency: Urgency,
    /// Order of urgent vCPUs: when it became urgent, or its urgent slice ended.
    pub(super) urgent_since: u64,
    pub(super) queued_at: u64,
    /// How far its virtual time was ahead of those who waited when it fell asleep.
    pub(super) ahead: u64,
    pub(super) ran_from: u64,
    /// The VM, if it is a vCPU.
    pub(super) vm: Option<u32>,
    /// The pCPU in whose load it is counted.
    pub(super) counted: Option<u32>,
    /// What it adds to that load.
    pub(super) load: u64,
    /// It is one of its VM's active vCPUs.
    pub(super) active: bool,
    pub(super) runs: bool,
    /// When it last woke a sibling; 0: it has halted since.
    pub(super) woke_at: u64,
    /// How often of late it halted soon after that.
    pub(super) halted_soon: u32,
    /// The pCPU that decides anew once KVM has delivered what this vCPU sends.
    pub(super) owes: Option<u32>,
    /// Senders of shootdowns that wait for its answer.
    pub(super) askers: Vec<Task>,
    pub(super) waits: Wait,
    /// pCPUs on which it may run, when it was queued.
    pub(super) allowed: u64,
}

/// `struct pcpu`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PcpuState {
    /// Virtual time of the task that runs, when it started to.
    pub(super) vtime: u64,
    pub(super) ran_from: u64,
    /// When the urgent slice of the task that runs began.
    pub(super) slice_from: u64,
    pub(super) share: u64,
    pub(super) load: u64,
    /// Urgent vCPUs might wait here.
    pub(super) urgent: bool,
    pub(super) running: Running,
    /// A woken task preempts who runs, and does not run yet.
    pub(super) preempting: bool,
    /// The expected burst of the task that runs, when it was placed here, started or went on; 0: none runs.
    pub(super) burst: u64,
    pub(super) balanced_at: u64,
    /// When the timer expires, or did.
    pub(super) decides_at: u64,
    /// Those that wait, by virtual time.
    pub(super) queue: BTreeSet<(u64, u64, Task)>,
}

/// Who runs on a pCPU: `runs` and `urgent_runs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Running {
    #[default]
    Nobody,
    NotUrgent,
    /// A vCPU that might be.
    Urgent,
}

/// `struct vm`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct VmState {
    pub(super) weight: u32,
    pub(super) vcpus: u32,
    pub(super) active: u32,
    pub(super) average: u32,
    pub(super) changed_at: u64,
    pub(super) summed_from: u64,
    pub(super) sum: u64,
}

impl Host {
    pub(super) fn new(header: Header) -> Self {
        let pcpus = (0..header.pcpus).map(|_| PcpuState::default()).collect();
        let (tasks, vms) = (BTreeMap::new(), BTreeMap::new());
        Self { header: Arc::new(header), pcpus, tasks, vms, floor: 0, queued: 0, decisions: Vec::new() }
    }

    pub(super) fn task(&mut self, task: Task) -> &mut TaskState {
        self.tasks.entry(task).or_insert_with(|| TaskState { weight: 100, ..TaskState::default() })
    }

    /// `None`: the record names a pCPU that its header does not have.
    pub(super) fn pcpu(&mut self, cpu: u32) -> Option<&mut PcpuState> {
        self.pcpus.get_mut(cpu as usize)
    }

    pub(super) fn rules_of(&self, task: Task) -> UrgentConfig {
        *self.header.rules_of(self.tasks.get(&task).and_then(|task| task.vm))
    }

    /// What it decides when this happens. Nothing follows from decisions, which are those of the recorded scheduler.
    pub(super) fn happens(&mut self, what: &What) -> Vec<Decision> {
        match *what {
            What::Enters { task } => self.task(task).vtime = self.floor,
            What::Leaves { task } => self.leaves(task),
            What::Vcpu { at, task, vm, cpu } => self.is_vcpu(at, task, vm, cpu),
            What::Runnable { at, task, cpu } => {
                self.set_active(task, true, at);
                self.catch_up(task, cpu, at);
            }
            What::Quiescent { at, task, sleeps } => {
                self.stop_waiting(task);
                let counted = self.task(task).counted;
                let first = counted.and_then(|cpu| self.first_vtime(cpu, None));
                let own = self.task(task);
                own.ahead = first.map_or(0, |first| own.vtime.saturating_sub(first));
                self.uncount(task);
                self.set_active(task, false, at);
                if sleeps {
                    self.task(task).urgency.end();
                }
            }
            What::Woken { at, task, waker, cpu, last, allowed, idle, burst, ours: true } => {
                let (cpu, idle) =
                    self.place(Wakeup { at, task, burst, waker, here: cpu, last, allowed, idle });
                if idle {
                    self.uses(cpu, burst);
                }
                self.decisions.push(Decision::Placed { task, cpu, idle });
                self.placed(task, cpu, idle);
            }
            What::Queued { at, task, cpu, weight, allowed, idle, woken } => {
                let own = self.task(task);
                (own.weight, own.allowed) = (weight, allowed);
                self.queue(at, task, cpu, idle & 1 << cpu != 0, woken);
            }
            What::Next { task, cpu } => self.put_next(task, cpu),
            What::Asks { at, cpu, running, burst } => {
                self.uses(cpu, burst);
                if let Some(pcpu) = self.pcpu(cpu) {
                    pcpu.preempting = false;
                }
                let choice = self.choose(at, cpu, (running != 0).then_some(running));
                self.decisions.push(Decision::Chose { cpu, choice });
            }
            What::Runs { at, task, cpu, weight, burst } => {
                self.uses(cpu, burst);
                self.runs(at, task, cpu, weight);
            }
            What::Stops { at, task } => self.stops(at, task),
            What::Interrupt { at, from, to, means, halted } => self.interrupt(at, from, to, means, halted),
            What::Delivered { from } => self.delivered(from),
            What::Acknowledges { task } => self.acknowledges(task),
            What::Halts { at, task } => self.halts(at, task),
            What::Spins { at, task } => self.spins(at, task),
            What::Yields { at, task, to } => {
                let gives = self.gives_way(at, task, to);
                self.decisions.push(Decision::Yielded { task, gives });
            }
            What::Woken { ours: false, .. } | What::Sent { .. } | What::Decides(_) | What::End { .. } => {}
        }
        std::mem::take(&mut self.decisions)
    }

    fn uses(&mut self, cpu: u32, burst: u64) {
        if let Some(pcpu) = self.pcpu(cpu) {
            pcpu.burst = burst;
        }
    }

    /// A woken task goes to this pCPU; if that was idle, at once.
    pub(super) fn placed(&mut self, task: Task, cpu: u32, idle: bool) {
        if idle {
            self.put_next(task, cpu);
        }
    }

    fn leaves(&mut self, task: Task) {
        self.stop_waiting(task);
        let Some(vm) = self.tasks.remove(&task).and_then(|task| task.vm) else { return };
        if let Some(state) = self.vms.get_mut(&vm) {
            state.vcpus = state.vcpus.saturating_sub(1);
            if state.vcpus == 0 {
                self.vms.remove(&vm);
            }
        }
    }

    fn is_vcpu(&mut self, at: u64, task: Task, vm: u32, cpu: u32) {
        let fresh = || VmState {
            weight: 100,
            vcpus: 0,
            active: 0,
            average: 0,
            changed_at: at,
            summed_from: at,
            sum: 0,
        };
        self.vms.entry(vm).or_insert_with(fresh).vcpus += 1;
        // It was counted as another task.
        self.uncount(task);
        self.task(task).vm = Some(vm);
        self.set_active(task, true, at);
        self.count_on(task, cpu);
    }

    fn runs(&mut self, at: u64, task: Task, cpu: u32, weight: u32) {
        self.stop_waiting(task);
        match self.task(task).vm {
            Some(vm) => {
                if let Some(vm) = self.vms.get_mut(&vm) {
                    vm.weight = weight;
                }
                self.average_active(vm, 0, at);
            }
            None => self.task(task).weight = weight,
        }
        self.count_on(task, cpu);
        let (share, first) = (self.share_of(task), self.first_vtime(cpu, None));
        let own = self.task(task);
        own.urgency.runs(at);
        (own.runs, own.ran_from) = (true, at);
        let (vtime, urgent) = (own.vtime, own.urgency.is_urgent(at));
        let Some(pcpu) = self.pcpu(cpu) else { return };
        (pcpu.vtime, pcpu.share) = (vtime, share);
        pcpu.running = if urgent { Running::Urgent } else { Running::NotUrgent };
        (pcpu.ran_from, pcpu.slice_from) = (at, at);
        if first.is_none_or(|first| vtime <= first) {
            self.floor = self.floor.max(vtime);
        }
        self.has_preempted(at, task, cpu);
    }

    fn stops(&mut self, at: u64, task: Task) {
        let share = self.share_of(task);
        let own = self.task(task);
        own.runs = false;
        let ran = at.saturating_sub(own.ran_from);
        own.vtime = own.vtime.wrapping_add(gleaner_coordination::virtual_time(ran, share));
        if let Some(cpu) = own.counted {
            self.uses(cpu, 0);
            if let Some(pcpu) = self.pcpu(cpu) {
                pcpu.running = Running::Nobody;
            }
        }
    }
}
