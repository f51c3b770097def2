//! Where a woken vCPU goes (`placement.bpf.h`).

use gleaner_coordination::record::Task;
use gleaner_coordination::{HALTS_SOON, PcpuLoad, Placement};

use super::host::Host;

impl Host {
    /// The pCPU for the woken vCPU, and whether that is an idle one: an idle one, its last one first; else that of its waker,
    /// `here`, if that is about to halt; else the one with the least load. `allowed` and `idle` have a bit for each pCPU.
    pub(super) fn place(
        &self,
        task: Task,
        waker: Task,
        here: u32,
        last: u32,
        allowed: u64,
        idle: u64,
    ) -> (u32, bool) {
        let has = |bits: u64, cpu: u32| bits & 1 << cpu != 0;
        let online: Vec<u32> = (0..self.header.pcpus).filter(|cpu| has(self.header.online, *cpu)).collect();
        let seen: Vec<PcpuLoad> = online.iter().map(|cpu| self.load_of(task, *cpu)).collect();
        let (placement, rule) = (Placement::among(&seen), self.header.placement);
        let allows = |cpu: u32| placement.allows(rule, self.load_of(task, cpu));
        if has(allowed, last) && allows(last) && has(idle, last) {
            return (last, true);
        }
        let candidates = || online.iter().copied().filter(|cpu| has(allowed, *cpu));
        if let Some(cpu) = candidates().find(|cpu| allows(*cpu) && has(idle, *cpu)) {
            return (cpu, true);
        }
        if has(allowed, here) && self.follows(task, waker, here) {
            return (here, false);
        }
        let load = |cpu: &u32| self.load_of(task, *cpu).load;
        let chosen = candidates().filter(|cpu| allows(*cpu)).min_by_key(load);
        // Its affinity may leave none that the rule allows.
        (chosen.or_else(|| candidates().min_by_key(load)).unwrap_or(last), false)
    }

    fn load_of(&self, task: Task, cpu: u32) -> PcpuLoad {
        let load = self.pcpus.get(cpu as usize).map_or(0, |pcpu| pcpu.load);
        PcpuLoad { load, has_sibling: self.siblings(task, cpu) > 0 }
    }

    /// How many other vCPUs of its VM run or wait on this pCPU.
    fn siblings(&self, task: Task, cpu: u32) -> usize {
        let Some(vm) = self.tasks.get(&task).and_then(|task| task.vm) else { return 0 };
        let is_sibling = |other: &Task| {
            self.tasks[other].vm == Some(vm) && self.tasks[other].counted == Some(cpu) && *other != task
        };
        self.tasks.keys().filter(|other| is_sibling(other)).count()
    }

    /// Whether the waker, which runs on this pCPU, is about to halt, and no other sibling waits for that.
    fn follows(&self, task: Task, waker: Task, cpu: u32) -> bool {
        let (Some(own), Some(other)) = (self.tasks.get(&task), self.tasks.get(&waker)) else { return false };
        let is_about_to_halt = other.woke_at != 0 && other.halted_soon >= HALTS_SOON;
        waker != task && own.vm == other.vm && is_about_to_halt && self.siblings(task, cpu) == 1
    }
}
