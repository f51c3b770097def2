//! Builds a machine from its description.

use std::collections::VecDeque;

use super::counts::VcpuCounts;
use super::entity::{
    CATEGORIES, HostState, Kind, Object, PcpuData, PcpuState, Phase, Step, TaskData, ThreadData, ThreadState,
    VcpuData, VmData, WaitQueue, WakeJob, irq,
};
use super::quota::Bandwidth;
use super::{Layout, TaskTotals, Timer, World};
use crate::ids::{FOREVER, Ns, Obj, Pcpu, Task, Thread, Vcpu, Vm};
use crate::program::{BarrierKind, MAX_LOOPS, ObjectKind, Op, Program};
use crate::random::Seeds;
use crate::sched::Entity;
use crate::spec::{HostSpec, Spec, SpecError, TaskSpec, VmSpec};
use crate::timers::Timers;

/// Initial average idle period of a vCPU: long enough that it searches for work.
const INITIAL_AVG_IDLE: Ns = 1_000_000;

impl World {
    /// Builds the machine that `spec` describes, at time 0 with every thread ready.
    ///
    /// # Errors
    /// The machine cannot be built.
    pub fn new(spec: &Spec) -> Result<Self, SpecError> {
        spec.check()?;
        let pcpus = pcpus(&spec.host);
        let mut world = Self {
            now: 0,
            timers: Timers::new(0),
            layout: Layout::new(0, 1, 0, 0),
            host: spec.host,
            pcpus,
            vcpus: Vec::new(),
            threads: Vec::new(),
            objects: Vec::new(),
            tasks: Vec::new(),
            vms: Vec::new(),
            unfinished: 0,
            waiting: 0,
            events: 0,
            event_limit: spec.event_limit,
            time_limit: spec.time_limit,
            digest: 0xcbf2_9ce4_8422_2325,
            end: None,
            trace: None,
        };
        let seeds = Seeds(spec.seed);
        spec.vms.iter().for_each(|vm| world.add_vm(vm, seeds));
        world.layout =
            Layout::new(world.pcpus.len(), world.vcpus.len(), world.threads.len(), world.vms.len());
        world.timers = Timers::new(world.layout.count());
        world.start();
        Ok(world)
    }

    fn add_vm(&mut self, spec: &VmSpec, seeds: Seeds) {
        let vm = Vm::at(self.vms.len());
        let first = Vcpu::at(self.vcpus.len()).0;
        // Pinned vCPUs go to their pCPUs. The others start spread out, as the host's balancing would leave
        // them: one per core first, then on the remaining hardware threads.
        let host = self.host;
        let spread = |nth: u32| {
            let cores = host.sockets * host.cores;
            let nth = nth % host.pcpus();
            Pcpu(nth % cores * host.smt + nth / cores)
        };
        let first_pcpu = |cpu| if spec.pinned { Pcpu(cpu % host.pcpus()) } else { spread(first + cpu) };
        self.vcpus.extend((0..spec.vcpus).map(|cpu| vcpu(vm, cpu, first_pcpu(cpu))));
        self.vms.push(VmData {
            name: spec.name.clone(),
            first,
            vcpus: spec.vcpus,
            costs: spec.costs,
            fair: spec.fair,
            shares: spec.shares,
            pinned: spec.pinned,
            idle: spec.idle,
            active: vec![true; spec.vcpus as usize],
            halt_poll_max: spec.halt_poll_max,
            pv_tlb: spec.pv_tlb,
            lazy_tlb: spec.lazy_tlb,
            halted_is_preempted: spec.halted_is_preempted,
            wake_queue: spec.wake_queue,
            requeue: spec.requeue,
            pv_lock: spec.pv_lock,
            ple: spec.ple,
            urgent: spec.urgent.unwrap_or(self.host.urgent),
            idle_bits: vec![0; spec.vcpus.div_ceil(64) as usize],
            awake: 0,
            load: super::group::Load::default(),
            spinning: 0,
            queued: 0,
            ready: 0,
            timed: 0,
            alive: 0,
            yield_from: 0,
            bandwidth: spec.quota.map(Bandwidth::new),
        });
        for v in (first..first + spec.vcpus).map(Vcpu) {
            self.set_idle_bit(v, true);
        }
        spec.tasks.iter().for_each(|task| self.add_task(vm, task, seeds));
    }

    fn add_task(&mut self, vm: Vm, spec: &TaskSpec, seeds: Seeds) {
        let program = &spec.program;
        let task = Task::at(self.tasks.len());
        let first_object = Obj::at(self.objects.len());
        let numbers = self.add_objects(program);
        let first_thread = Thread::at(self.threads.len()).0;
        let data = &self.vms[vm.index()];
        let (first, vcpus) = (data.first, data.vcpus);
        for (role, spec) in program.roles.iter().enumerate() {
            for _ in 0..spec.threads {
                let t = Thread::at(self.threads.len());
                let v = Vcpu(first + (t.0 - first_thread) % vcpus);
                self.threads.push(thread(task, role, v, seeds, t));
            }
        }
        let threads = program.threads();
        self.vms[vm.index()].alive += threads;
        self.unfinished += u32::from(!spec.looping);
        self.tasks.push(TaskData {
            vm,
            name: program.name.clone(),
            codes: program
                .roles
                .iter()
                .map(|r| r.code.iter().map(|op| renumber(*op, &numbers)).collect())
                .collect(),
            roles: program.roles.iter().map(|r| r.name.clone()).collect(),
            names: program.names.iter().map(|(o, name)| (numbers[usize::from(*o)], name.clone())).collect(),
            first_object: first_object.0,
            objects: Obj::at(self.objects.len()).0 - first_object.0,
            first_thread,
            threads,
            alive: threads,
            looping: spec.looping,
            totals: TaskTotals::default(),
        });
    }

    /// Adds the program's objects, each followed by its parts: a queue by its mutex and two conditions, a
    /// barrier with a condition by its mutex and condition. Returns the new numbers.
    fn add_objects(&mut self, program: &Program) -> Vec<u16> {
        let start = self.objects.len();
        let mut numbers = Vec::with_capacity(program.objects.len());
        for object in &program.objects {
            numbers.push(u16::try_from(self.objects.len() - start).unwrap_or(u16::MAX));
            let mut add = |kind| self.objects.push(Object { kind, queue: WaitQueue::default() });
            match *object {
                ObjectKind::Mutex { spin, handoff } => {
                    add(Kind::Mutex { holder: None, spin, handoff, contended: false });
                }
                ObjectKind::Barrier { parties, kind } => {
                    add(Kind::Barrier { parties, arrived: 0, kind, leaving: false });
                    if let BarrierKind::Condition(_) = kind {
                        add(Kind::Mutex { holder: None, spin: 0, handoff: false, contended: false });
                        add(Kind::Condition { signals: 0, broadcasts: 0 });
                    }
                }
                ObjectKind::Queue { capacity, producers, spin, always_signals } => {
                    add(Kind::Queue { len: 0, capacity, open: producers, producers, always_signals });
                    add(Kind::Mutex { holder: None, spin, handoff: false, contended: false });
                    add(Kind::Condition { signals: 0, broadcasts: 0 });
                    add(Kind::Condition { signals: 0, broadcasts: 0 });
                }
                ObjectKind::Condition => add(Kind::Condition { signals: 0, broadcasts: 0 }),
                ObjectKind::Channel(kind) => add(Kind::Channel { posts: 0, kind }),
            }
        }
        numbers
    }

    /// Makes all threads ready, on separate vCPUs as far as possible.
    fn start(&mut self) {
        for t in (0..self.threads.len()).map(Thread::at) {
            let v = self.t(t).vcpu;
            self.queue_thread(v, t);
            self.set_idle_bit(v, false);
            self.vm_mut(v).ready += 1;
        }
        for v in (0..self.vcpus.len()).map(Vcpu::at) {
            if !self.v(v).queue.is_empty() {
                self.raise(v, irq::RESCHED);
            }
        }
        if self.pcpus.len() > 1 {
            self.set(Timer::Balance, self.host.balance_every);
        }
        for vm in (0..self.vms.len()).map(Vm::at) {
            if self.vms[vm.index()].vcpus > 1 {
                self.guest_balance(vm);
            }
            self.start_quota(vm);
        }
    }
}

fn pcpus(host: &HostSpec) -> Vec<PcpuData> {
    let pcpu = |index: u32| PcpuData {
        state: PcpuState::Idle,
        socket: index / (host.cores * host.smt),
        sibling: (host.smt == 2).then_some(Pcpu(index ^ 1)),
        queue: Vec::new(),
        urgent: VecDeque::new(),
        urgent_turn: false,
        delayed: false,
        buddy: None,
        floor: 0,
        groups: Vec::new(),
        average_idle: INITIAL_AVG_IDLE,
        idle_from: 0,
        last: None,
        warm: None,
        slice_from: 0,
        charged: 0,
        since: 0,
        idle: 0,
        guest: 0,
        overhead: 0,
        polling: 0,
    };
    (0..host.pcpus()).map(pcpu).collect()
}

fn vcpu(vm: Vm, cpu: u32, pcpu: Pcpu) -> VcpuData {
    VcpuData {
        vm,
        cpu,
        host: HostState::Blocked,
        pcpu,
        entity: Entity::default(),
        halt_poll: 0,
        blocked_at: None,
        woken_from: pcpu,
        arrives_at: 0,
        urgency: gleaner_coordination::Urgency::default(),
        phase: Phase::Halted,
        step: Step::Return,
        left: FOREVER,
        since: 0,
        saved: (Phase::Halted, FOREVER),
        speed: 1000,
        current: None,
        last: None,
        queue: Vec::new(),
        floor: 0,
        need_resched: false,
        pending: 0,
        in_flight: 0,
        callers: Vec::new(),
        acks: 0,
        asked_at: 0,
        lazy: false,
        then_poll: 0,
        poll_ends: 0,
        flushed: Vec::new(),
        expired: Vec::new(),
        wake: WakeJob::default(),
        lock: None,
        lock_since: 0,
        after: (Step::Return, 0),
        poll_limit: 0,
        idle_since: 0,
        halted_since: 0,
        average_idle: INITIAL_AVG_IDLE,
        pause_window: 0,
        in_vain: false,
        spun_in_vain: 0,
        preempted: false,
        gave_up: false,
        next_time: false,
        counts: VcpuCounts::default(),
        time: [0; CATEGORIES],
    }
}

fn thread(task: Task, role: usize, vcpu: Vcpu, seeds: Seeds, t: Thread) -> ThreadData {
    ThreadData {
        task,
        role: u16::try_from(role).unwrap_or(u16::MAX),
        state: ThreadState::Ready,
        vcpu,
        pc: 0,
        step: 0,
        depth: 0,
        loops: [(0, 0); MAX_LOOPS],
        left: 0,
        owed: 0,
        spin_left: 0,
        spun: false,
        slept: false,
        seen: 0,
        condition: 0,
        broadcasts: 0,
        entity: Entity::default(),
        next: None,
        ready_at: 0,
        woken_at: None,
        generator: seeds.generator("thread", u64::from(t.0)),
    }
}

/// `op` with the objects' new numbers.
fn renumber(op: Op, numbers: &[u16]) -> Op {
    let new = |o: u16| numbers[usize::from(o)];
    match op {
        Op::Lock(o) => Op::Lock(new(o)),
        Op::Unlock(o) => Op::Unlock(new(o)),
        Op::Barrier(o) => Op::Barrier(new(o)),
        Op::Put(o) => Op::Put(new(o)),
        Op::Take(o, closed) => Op::Take(new(o), closed),
        Op::Close(o) => Op::Close(new(o)),
        Op::Wait(o, mutex) => Op::Wait(new(o), new(mutex)),
        Op::Signal(o) => Op::Signal(new(o)),
        Op::Broadcast(o) => Op::Broadcast(new(o)),
        Op::Send(o) => Op::Send(new(o)),
        Op::Receive(o) => Op::Receive(new(o)),
        other => other,
    }
}
