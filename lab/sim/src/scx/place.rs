//! Where a woken vCPU goes (`placement.bpf.h`).

use std::cmp::Reverse;

use gleaner_coordination::record::Task;
use gleaner_coordination::{Beside, HALTS_SOON, PcpuLoad, Placement, load_level};

use super::host::Host;

/// A woken vCPU; `allowed` and `idle` have a bit for each pCPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wakeup {
    pub(super) at: u64,
    pub(super) task: Task,
    /// Its expected burst, in ns.
    pub(super) burst: u64,
    pub(super) waker: Task,
    /// The pCPU of its waker.
    pub(super) here: u32,
    /// The pCPU that it was on last.
    pub(super) last: u32,
    pub(super) allowed: u64,
    pub(super) idle: u64,
}

impl Host {
    /// The pCPU for a woken vCPU, and whether that is an idle one: an idle one, beside nobody or those of the other kind, the
    /// nearest to its last one; else that of its waker, if that is about to halt, which it may do first; else the one with the
    /// least load, and of those the one whose task has had most.
    pub(super) fn place(&mut self, wakeup: Wakeup) -> (u32, bool) {
        let Wakeup { at, task, burst, waker, here, last, allowed, idle } = wakeup;
        let has = |bits: u64, cpu: u32| bits & 1 << cpu != 0;
        let online: Vec<u32> = (0..self.header.pcpus).filter(|cpu| has(self.header.online, *cpu)).collect();
        let seen: Vec<PcpuLoad> = online.iter().map(|cpu| self.load_of(task, *cpu)).collect();
        let (placement, rule) = (Placement::among(&seen), self.header.placement);
        let allows = |cpu: u32| placement.allows(rule, self.load_of(task, cpu));
        let candidates = || online.iter().copied().filter(|cpu| has(allowed, *cpu));
        let idle = candidates().filter(|cpu| allows(*cpu) && has(idle, *cpu));
        if let Some(cpu) = idle.min_by_key(|cpu| (self.worst_beside(*cpu, burst), self.distance(*cpu, last)))
        {
            return (cpu, true);
        }
        if has(allowed, here) && self.follows(task, waker, here) {
            let follow_ns = self.header.follow_ns;
            let own = self.task(waker);
            own.urgency.for_time(own.woke_at, follow_ns);
            self.runs_urgently(waker);
            return (here, false);
        }
        let load = |cpu: &u32| self.load_of(task, *cpu).load;
        let (total, count) = (online.iter().map(load).sum(), u32::try_from(online.len()).unwrap_or(u32::MAX));
        let least = |cpu: &u32| {
            let beside = self.worst_beside(*cpu, burst);
            (load_level(load(cpu), total, count), beside, Reverse(self.current_vtime(*cpu, at)))
        };
        let chosen = candidates().filter(|cpu| allows(*cpu)).min_by_key(least);
        // Its affinity may leave none that the rule allows.
        (chosen.or_else(|| candidates().min_by_key(load)).unwrap_or(last), false)
    }

    fn load_of(&self, task: Task, cpu: u32) -> PcpuLoad {
        let load = self.pcpus.get(cpu as usize).map_or(0, |pcpu| pcpu.load);
        PcpuLoad { load, has_sibling: self.siblings(task, cpu) > 0 }
    }

    /// Beside whom a task with these bursts would run on this pCPU, at worst.
    fn worst_beside(&self, cpu: u32, burst: u64) -> Beside {
        let next = |cpu: &u32| self.header.threads.get(*cpu as usize).copied();
        let others = std::iter::successors(next(&cpu), next).take_while(|other| *other != cpu);
        let running = others.take(self.pcpus.len()).filter_map(|other| self.pcpus.get(other as usize));
        running.map(|pcpu| Beside::of(burst, pcpu.burst)).max().unwrap_or(Beside::Nobody)
    }

    /// 0: the pCPU `last` itself; 1: it has the same last-level cache.
    fn distance(&self, cpu: u32, last: u32) -> u32 {
        if cpu == last {
            0
        } else if self.llc(cpu) == self.llc(last) {
            1
        } else {
            2
        }
    }

    /// How many other vCPUs of its VM run or wait on this pCPU.
    fn siblings(&self, task: Task, cpu: u32) -> usize {
        let Some(vm) = self.tasks.get(&task).and_then(|task| task.vm) else { return 0 };
        let is_sibling = |other: &Task| {
            self.tasks[other].vm == Some(vm) && self.tasks[other].counted == Some(cpu) && *other != task
        };
        self.tasks.keys().filter(|other| is_sibling(other)).count()
    }

    /// Whether the waker, which runs on this pCPU, is about to halt, and no other sibling waits for that. Not under Resched-Co,
    /// which lets the woken vCPU preempt somebody at once.
    fn follows(&self, task: Task, waker: Task, cpu: u32) -> bool {
        let (Some(own), Some(other)) = (self.tasks.get(&task), self.tasks.get(&waker)) else { return false };
        let is_about_to_halt = other.woke_at != 0 && other.halted_soon >= HALTS_SOON;
        let may_wait = self.rules_of(task).resched_co_ns == 0;
        waker != task && own.vm == other.vm && is_about_to_halt && may_wait && self.siblings(task, cpu) == 1
    }
}
