//! Reconstructs from a trace the policy's observation of each interval, and the whole pattern.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_policy::{CpuId, CpuSet, Observation, VcpuInterval, WorkloadInterval};
use serde::Serialize;

use super::{Event, EventKind, PrevState, Task};

/// A trace's threads and their wake-ups of each other.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Pattern {
    /// The threads, in the order of their first appearance.
    pub threads: Vec<PatternThread>,
    /// The wake-ups, most frequent first.
    pub edges: Vec<PatternEdge>,
}

/// The activity of one thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PatternThread {
    /// The kernel's TID.
    pub tid: u32,
    /// PID of its process; 0 if lost.
    pub process: u32,
    /// Its latest name.
    pub name: String,
    /// CPU time.
    pub cpu_time: Duration,
    /// Number of times that it left a vCPU...
    pub switches: u64,
    /// ...and of these, because it blocked. The CPU time between two of these is one segment of computation.
    pub waits: u64,
    /// Time blocked, until the wake-ups that ended it, summed.
    pub wait_time: Duration,
    /// Number of times woken.
    pub woken: u64,
    /// Time runnable without a vCPU: from a wake-up or preemption until it ran.
    pub run_delay: Duration,
}

/// Wake-ups of one thread by another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PatternEdge {
    /// Index of the waker in [`Pattern::threads`]; `None` for an interrupt, or a thread outside the workload.
    pub waker: Option<u32>,
    /// Index of the wakee.
    pub wakee: u32,
    /// Number of wake-ups.
    pub count: u64,
}

/// Reconstructs a workload from the start of its trace.
///
/// What a trace does not contain counts as absent: steal, CPU quota, bytes moved, the user's counter. Every
/// idle period counts as a halt: the recorded pattern represents the untouched system.
#[derive(Debug)]
pub struct Reconstruction {
    vcpus: BTreeMap<CpuId, Vcpu>,
    threads: Vec<Thread>,
    edges: BTreeMap<(Task, Task), u64>,
    /// Start of the present interval.
    start: Duration,
    /// The workload in the present interval.
    work: WorkloadInterval,
    runnable: u32,
    living: u32,
}

#[derive(Debug)]
struct Vcpu {
    task: Task,
    since: Duration,
    /// Halts in the present interval.
    halts: u64,
    halt_time: Duration,
}

#[derive(Debug, Default)]
struct Thread {
    pattern: PatternThread,
    state: ThreadState,
    since: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ThreadState {
    /// Nothing seen of it yet, or the events were lost.
    #[default]
    Unknown,
    Runnable,
    Running,
    Blocked,
    Ended,
}

impl Reconstruction {
    /// For the trace of a machine with these vCPUs. `events` shows the initial task of each vCPU: the first one
    /// that leaves it, or idle if none ever does.
    pub fn new(vcpus: &CpuSet, events: impl Iterator<Item = Event>) -> Self {
        let mut first: BTreeMap<CpuId, Task> = BTreeMap::new();
        for event in events {
            if let EventKind::Switch { cpu, from, .. } = event.what {
                first.entry(cpu).or_insert(from);
            }
        }
        let vcpu = |cpu: CpuId| {
            let task = first.get(&cpu).copied().unwrap_or(Task::Nobody);
            let halts = u64::from(task == Task::Nobody);
            (cpu, Vcpu { task, since: Duration::ZERO, halts, halt_time: Duration::ZERO })
        };
        Self {
            vcpus: vcpus.iter().map(vcpu).collect(),
            threads: Vec::new(),
            edges: BTreeMap::new(),
            start: Duration::ZERO,
            work: WorkloadInterval::default(),
            runnable: 0,
            living: 0,
        }
    }

    /// Processes the next event.
    pub fn event(&mut self, event: &Event) {
        let at = Duration::from_nanos(event.at_ns);
        match &event.what {
            EventKind::Switch { cpu, from, prev_state, to } => self.switch(at, *cpu, *from, *prev_state, *to),
            EventKind::Wake { waker, wakee, .. } => {
                *self.edges.entry((*waker, *wakee)).or_default() += 1;
                if let Task::Thread(thread) = wakee {
                    self.wake(at, *thread);
                }
            }
            EventKind::Thread { tid, process, name } => {
                let pattern = PatternThread {
                    tid: *tid,
                    process: *process,
                    name: name.clone(),
                    ..PatternThread::default()
                };
                self.threads.push(Thread { pattern, ..Thread::default() });
                self.living += 1;
            }
            EventKind::Renamed { thread, name } => {
                if let Some(thread) = self.threads.get_mut(*thread as usize) {
                    thread.pattern.name.clone_from(name);
                }
            }
            EventKind::Lost { .. } => {}
        }
    }

    /// Number of threads that run or wait for a vCPU, including running threads outside the workload.
    pub fn runnable(&self) -> u32 {
        let others = self.vcpus.values().filter(|vcpu| vcpu.task == Task::Other).count();
        self.runnable.saturating_add(u32::try_from(others).unwrap_or(u32::MAX))
    }

    /// The observation of the interval that ends at `at`; starts the next one.
    pub fn observe(&mut self, at: Duration) -> Observation {
        let cpus: Vec<CpuId> = self.vcpus.keys().copied().collect();
        for cpu in &cpus {
            self.account_vcpu(*cpu, at);
        }
        for thread in &mut self.threads {
            if thread.state == ThreadState::Runnable {
                let waited = at.saturating_sub(thread.since);
                thread.since = at;
                thread.pattern.run_delay += waited;
                self.work.run_delay += waited;
            }
        }
        let vcpus = self.vcpus.iter_mut().map(|(cpu, vcpu)| VcpuInterval {
            cpu: *cpu,
            halts: std::mem::take(&mut vcpu.halts),
            halt_time: std::mem::take(&mut vcpu.halt_time),
            polls: 0,
            poll_time: Duration::ZERO,
            steal: Duration::ZERO,
        });
        let period = at.saturating_sub(std::mem::replace(&mut self.start, at));
        let vcpus = vcpus.collect();
        let work = std::mem::take(&mut self.work);
        Observation {
            at,
            period,
            vcpus,
            workload: WorkloadInterval { threads: self.living, ..work },
            runnable: self.runnable(),
            overload: None,
            throttled: 0.0,
            settled: true,
            cost: Duration::ZERO,
        }
    }

    /// The pattern up to the last call of [`Reconstruction::observe`].
    pub fn pattern(&self) -> Pattern {
        let number = |task: &Task| match task {
            Task::Thread(thread) => Some(*thread),
            Task::Nobody | Task::Other => None,
        };
        let mut counts: BTreeMap<(Option<u32>, u32), u64> = BTreeMap::new();
        for ((waker, wakee), count) in &self.edges {
            if let Some(wakee) = number(wakee) {
                *counts.entry((number(waker), wakee)).or_default() += count;
            }
        }
        let edge = |((waker, wakee), count)| PatternEdge { waker, wakee, count };
        let mut edges: Vec<PatternEdge> = counts.into_iter().map(edge).collect();
        edges.sort_by_key(|edge| std::cmp::Reverse(edge.count));
        Pattern { threads: self.threads.iter().map(|thread| thread.pattern.clone()).collect(), edges }
    }

    fn switch(&mut self, at: Duration, cpu: CpuId, from: Task, prev_state: PrevState, to: Task) {
        self.account_vcpu(cpu, at);
        let was_there = self.vcpus.get(&cpu).is_some_and(|vcpu| vcpu.task == from);
        if !was_there {
            // The switches in between are lost: it is not known what ran since when.
            if let Some(Task::Thread(thread)) = self.vcpus.get(&cpu).map(|vcpu| vcpu.task) {
                self.set(thread, ThreadState::Unknown, at);
            }
        }
        if let Task::Thread(thread) = from {
            self.leave(at, thread, prev_state);
        }
        if let Task::Thread(thread) = to {
            self.enter(at, thread);
        }
        if let Some(vcpu) = self.vcpus.get_mut(&cpu) {
            vcpu.task = to;
            vcpu.halts += u64::from(to == Task::Nobody);
        }
    }

    /// Charges the time since the last account to the vCPU's task.
    fn account_vcpu(&mut self, cpu: CpuId, at: Duration) {
        let Some(vcpu) = self.vcpus.get_mut(&cpu) else { return };
        let time = at.saturating_sub(std::mem::replace(&mut vcpu.since, at));
        match vcpu.task {
            Task::Nobody => vcpu.halt_time += time,
            Task::Other => {}
            Task::Thread(thread) => {
                self.work.cpu_time += time;
                if let Some(thread) = self.threads.get_mut(thread as usize) {
                    thread.pattern.cpu_time += time;
                }
            }
        }
    }

    fn leave(&mut self, at: Duration, thread: u32, prev_state: PrevState) {
        self.work.switches += 1;
        let Some(known) = self.threads.get_mut(thread as usize) else { return };
        known.pattern.switches += 1;
        known.pattern.waits += u64::from(matches!(prev_state, PrevState::Blocked | PrevState::BlockedIo));
        // Woken while it was leaving.
        let awake = known.state == ThreadState::Runnable;
        let state = match prev_state {
            PrevState::Runnable => ThreadState::Runnable,
            PrevState::Blocked | PrevState::BlockedIo if awake => ThreadState::Runnable,
            PrevState::Blocked | PrevState::BlockedIo => ThreadState::Blocked,
            PrevState::Exited => ThreadState::Ended,
        };
        if state == ThreadState::Ended && known.state != ThreadState::Ended {
            self.living = self.living.saturating_sub(1);
        }
        self.set(thread, state, at);
    }

    fn enter(&mut self, at: Duration, thread: u32) {
        if let Some(known) =
            self.threads.get_mut(thread as usize).filter(|t| t.state == ThreadState::Runnable)
        {
            let waited = at.saturating_sub(known.since);
            known.pattern.run_delay += waited;
            self.work.run_delay += waited;
        }
        self.set(thread, ThreadState::Running, at);
    }

    fn wake(&mut self, at: Duration, thread: u32) {
        let Some(known) = self.threads.get_mut(thread as usize) else { return };
        known.pattern.woken += 1;
        if known.state == ThreadState::Blocked {
            known.pattern.wait_time += at.saturating_sub(known.since);
        }
        if known.state != ThreadState::Runnable {
            self.set(thread, ThreadState::Runnable, at);
        }
    }

    fn set(&mut self, thread: u32, state: ThreadState, at: Duration) {
        let Some(known) = self.threads.get_mut(thread as usize) else { return };
        let counts = |state| matches!(state, ThreadState::Runnable | ThreadState::Running);
        match (counts(known.state), counts(state)) {
            (false, true) => self.runnable += 1,
            (true, false) => self.runnable = self.runnable.saturating_sub(1),
            _ => {}
        }
        (known.state, known.since) = (state, at);
    }
}
