//! The simulated machine: its state, and the event loop.

mod barrier;
mod block;
mod build;
mod control;
mod counts;
mod entity;
mod exec;
mod fail;
mod group;
mod guest;
mod host;
mod idle;
mod ipi;
mod objects;
mod pick;
mod placement;
mod quota;
mod report;
mod sync;
mod threads;
mod urgent;

#[cfg(test)]
mod tests;

pub use counts::VcpuCounts;
pub use entity::{CATEGORIES, CATEGORY_NAMES, Category};
pub use fail::{Blocked, End};
pub use report::{PcpuReport, Report, TaskReport, TaskTotals, VcpuReport, VmReport};

use crate::ids::{Ns, Obj, Pcpu, Task, Thread, Vcpu, Vm};
use crate::spec::{HostSpec, IdleMode};
use crate::timers::Timers;
use crate::trace::Trace;
use entity::{Object, PcpuData, TaskData, ThreadData, VcpuData, VmData};

/// A simulated machine.
#[derive(Debug)]
pub struct World {
    now: Ns,
    timers: Timers,
    layout: Layout,
    host: HostSpec,
    pcpus: Vec<PcpuData>,
    vcpus: Vec<VcpuData>,
    threads: Vec<ThreadData>,
    objects: Vec<Object>,
    tasks: Vec<TaskData>,
    vms: Vec<VmData>,
    /// Programs still to end, not counting those that restart.
    unfinished: u32,
    /// vCPUs that wait on runqueues.
    waiting: u32,
    events: u64,
    event_limit: u64,
    time_limit: Ns,
    /// Hash of all events, in order.
    digest: u64,
    end: Option<End>,
    trace: Option<Trace>,
}

/// The purpose of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timer {
    /// A switch is complete, or a slice or poll has ended.
    Pcpu(Pcpu),
    /// A phase has ended.
    Work(Vcpu),
    /// Interrupts arrive.
    Irq(Vcpu),
    /// A guest's time slice has ended.
    Slice(Vcpu),
    /// A sleep or device wait has ended.
    Thread(Thread),
    /// The host balances its runqueues.
    Balance,
    /// A guest balances its runqueues.
    GuestBalance(Vm),
    /// A quota is compared with what was used.
    Quota(Vm),
}

/// First index of each kind of timer.
#[derive(Debug, Clone, Copy)]
struct Layout {
    work: usize,
    irq: usize,
    slice: usize,
    thread: usize,
    guest: usize,
    balance: usize,
    quota: usize,
    count: usize,
}

impl Layout {
    fn new(pcpus: usize, vcpus: usize, threads: usize, vms: usize) -> Self {
        let thread = pcpus + 3 * vcpus;
        let guest = thread + threads;
        let quota = guest + vms + 1;
        Self {
            work: pcpus,
            irq: pcpus + vcpus,
            slice: pcpus + 2 * vcpus,
            thread,
            guest,
            balance: guest + vms,
            quota,
            count: quota + vms,
        }
    }

    fn count(&self) -> usize {
        self.count
    }

    fn index(&self, timer: Timer) -> usize {
        match timer {
            Timer::Pcpu(p) => p.index(),
            Timer::Work(v) => self.work + v.index(),
            Timer::Irq(v) => self.irq + v.index(),
            Timer::Slice(v) => self.slice + v.index(),
            Timer::Thread(t) => self.thread + t.index(),
            Timer::GuestBalance(vm) => self.guest + vm.index(),
            Timer::Balance => self.balance,
            Timer::Quota(vm) => self.quota + vm.index(),
        }
    }

    fn timer(&self, index: usize) -> Timer {
        if index < self.work {
            Timer::Pcpu(Pcpu::at(index))
        } else if index < self.irq {
            Timer::Work(Vcpu::at(index - self.work))
        } else if index < self.slice {
            Timer::Irq(Vcpu::at(index - self.irq))
        } else if index < self.thread {
            Timer::Slice(Vcpu::at(index - self.slice))
        } else if index < self.guest {
            Timer::Thread(Thread::at(index - self.thread))
        } else if index < self.balance {
            Timer::GuestBalance(Vm::at(index - self.guest))
        } else if index < self.quota {
            Timer::Balance
        } else {
            Timer::Quota(Vm::at(index - self.quota))
        }
    }
}

impl World {
    /// Simulated time since the start.
    pub fn now(&self) -> Ns {
        self.now
    }

    /// Number of events handled.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Hash of every event and its time: equal for identical runs.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How the simulation ended, if it has.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Starts to record vCPU activity, up to `spans` spans.
    pub fn record(&mut self, spans: usize) {
        self.trace = Some(Trace::new(self.vcpus.len(), spans));
    }

    /// The recording, if there is one.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Runs the simulation to its end.
    pub fn run(&mut self) -> &End {
        self.run_until(self.time_limit);
        if self.end.is_none() {
            self.end = Some(End::TimeLimit);
        }
        self.settle_all();
        self.end.get_or_insert(End::TimeLimit)
    }

    /// Runs the simulation until the time `until`, or its end if that comes first.
    pub fn run_until(&mut self, until: Ns) {
        let until = until.min(self.time_limit);
        while self.end.is_none() {
            let Some((at, index)) = self.timers.pop(until) else {
                if self.timers.is_empty() {
                    self.nothing_to_come();
                }
                break;
            };
            self.step(at, index);
        }
        if self.end.is_none() {
            self.now = self.now.max(until);
            if until == self.time_limit {
                self.end = Some(End::TimeLimit);
            }
        }
    }

    fn step(&mut self, at: Ns, index: usize) {
        self.now = at;
        self.events += 1;
        self.digest = (self.digest ^ at ^ ((index as u64) << 40)).wrapping_mul(0x0100_0000_01b3);
        match self.layout.timer(index) {
            Timer::Pcpu(p) => self.pcpu_timer(p),
            Timer::Work(v) => self.work_done(v),
            Timer::Irq(v) => self.interrupts_arrive(v),
            Timer::Slice(v) => self.raise(v, entity::irq::TICK),
            Timer::Thread(t) => self.thread_timer(t),
            Timer::GuestBalance(vm) => self.guest_balance(vm),
            Timer::Balance => self.host_balance(),
            Timer::Quota(vm) => self.check_quota(vm),
        }
        if self.events >= self.event_limit && self.end.is_none() {
            self.end = Some(End::EventLimit);
        }
    }

    fn set(&mut self, timer: Timer, at: Ns) {
        self.timers.set(self.layout.index(timer), at);
    }

    fn cancel(&mut self, timer: Timer) {
        self.timers.cancel(self.layout.index(timer));
    }

    fn is_set(&self, timer: Timer) -> bool {
        self.timers.at(self.layout.index(timer)).is_some()
    }

    fn p(&self, p: Pcpu) -> &PcpuData {
        &self.pcpus[p.index()]
    }

    fn p_mut(&mut self, p: Pcpu) -> &mut PcpuData {
        &mut self.pcpus[p.index()]
    }

    fn v(&self, v: Vcpu) -> &VcpuData {
        &self.vcpus[v.index()]
    }

    fn v_mut(&mut self, v: Vcpu) -> &mut VcpuData {
        &mut self.vcpus[v.index()]
    }

    fn t(&self, t: Thread) -> &ThreadData {
        &self.threads[t.index()]
    }

    fn t_mut(&mut self, t: Thread) -> &mut ThreadData {
        &mut self.threads[t.index()]
    }

    fn o(&self, o: Obj) -> &Object {
        &self.objects[o.index()]
    }

    fn o_mut(&mut self, o: Obj) -> &mut Object {
        &mut self.objects[o.index()]
    }

    fn vm(&self, v: Vcpu) -> &VmData {
        &self.vms[self.v(v).vm.index()]
    }

    fn vm_mut(&mut self, v: Vcpu) -> &mut VmData {
        let vm = self.v(v).vm;
        &mut self.vms[vm.index()]
    }

    fn task_mut(&mut self, t: Thread) -> &mut TaskData {
        let task: Task = self.t(t).task;
        &mut self.tasks[task.index()]
    }
}
