//! Who waits for a pCPU, and who runs next there.

use gleaner_coordination::record::{Choice, Decision, Task};
use gleaner_coordination::woken_may_preempt;

use super::host::{Host, Running};

/// Where a task waits.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    #[default]
    Nowhere,
    /// In the fair order of this pCPU, with the virtual time and the number that it was queued with.
    Fair { cpu: u32, vtime: u64, order: u64 },
    /// Next on this pCPU.
    Next(u32),
}

impl Host {
    pub(super) fn stop_waiting(&mut self, task: Task) {
        if let Wait::Fair { cpu, vtime, order } = std::mem::take(&mut self.task(task).waits)
            && let Some(pcpu) = self.pcpu(cpu)
        {
            pcpu.queue.remove(&(vtime, order, task));
        }
    }

    pub(super) fn put_next(&mut self, task: Task, cpu: u32) {
        self.stop_waiting(task);
        self.task(task).waits = Wait::Next(cpu);
    }

    /// The task waits for the pCPU, which is `idle`. One that has just `woken` may preempt who runs.
    pub(super) fn queue(&mut self, at: u64, task: Task, cpu: u32, idle: bool, woken: bool) {
        self.stop_waiting(task);
        self.count_on(task, cpu);
        self.task(task).queued_at = at;
        let woken = woken && !idle;
        if woken && self.preempts(at, task, cpu) {
            self.put_next(task, cpu);
            self.decisions.push(Decision::Preempts { task, cpu });
            return;
        }
        self.queued += 1;
        let (order, before) = (self.queued, self.comes_before(at, task, cpu));
        let own = self.task(task);
        let (vtime, urgent) = (own.vtime, own.urgency.is_urgent(at));
        own.waits = Wait::Fair { cpu, vtime, order };
        let Some(pcpu) = self.pcpu(cpu) else { return };
        pcpu.urgent |= urgent;
        pcpu.queue.insert((vtime, order, task));
        if idle || woken && (urgent || pcpu.running == Running::Nobody || before) {
            self.decisions.push(Decision::Kicked { cpu, idle });
        }
    }

    fn comes_before(&mut self, at: u64, task: Task, cpu: u32) -> bool {
        let (current, slice) = (self.current_vtime(cpu, at), self.header.slice_ns);
        woken_may_preempt(self.task(task).vtime, current, slice)
    }

    /// Whether the pCPU, among its own tasks, would certainly choose this one, which has woken.
    fn preempts(&mut self, at: u64, task: Task, cpu: u32) -> bool {
        let (current, first) = (self.current_vtime(cpu, at), self.first_vtime(cpu, None));
        let (rules, share, before) =
            (self.rules_of(task), self.share_of(task), self.comes_before(at, task, cpu));
        let own = self.task(task);
        let (vtime, urgent) = (own.vtime, own.urgency.is_urgent(at));
        let Some(pcpu) = self.pcpu(cpu) else { return false };
        if pcpu.running != Running::NotUrgent || pcpu.urgent || pcpu.preempting {
            return false;
        }
        pcpu.preempting = if urgent {
            rules.may_preempt(share, vtime, first.map_or(current, |first| first.min(current)))
        } else {
            first.is_none_or(|first| vtime < first) && before
        };
        pcpu.preempting
    }

    /// The task runs; if it preempted, a kick meanwhile had no effect.
    pub(super) fn has_preempted(&mut self, at: u64, task: Task, cpu: u32) {
        let Some(pcpu) = self.pcpu(cpu) else { return };
        let (urgent, running) = (pcpu.urgent, pcpu.running);
        if !std::mem::take(&mut pcpu.preempting) {
            return;
        }
        if urgent {
            self.decisions.push(Decision::Kicked { cpu, idle: false });
        }
        if running == Running::Urgent {
            // At the end of its slice it is the last of the urgent ones.
            let slice = self.rules_of(task).slice_ns;
            self.task(task).urgent_since = at.saturating_add(slice);
            self.decide_in(cpu, slice, at);
        }
    }

    /// The pCPU decides anew in `ns`, if it does not do so earlier.
    pub(super) fn decide_in(&mut self, cpu: u32, ns: u64, at: u64) {
        let Some(pcpu) = self.pcpu(cpu) else { return };
        let then = at.saturating_add(ns);
        if at < pcpu.decides_at && pcpu.decides_at <= then {
            return;
        }
        pcpu.decides_at = then;
        self.decisions.push(Decision::Timed { ns });
    }

    /// The virtual time of the first task that waits for the pCPU, if it has waited since before `since`.
    pub(super) fn first_vtime(&self, cpu: u32, since: Option<u64>) -> Option<u64> {
        let (vtime, _, task) = self.pcpus.get(cpu as usize)?.queue.first()?;
        let queued_at = self.tasks.get(task).map_or(0, |task| task.queued_at);
        since.is_none_or(|since| queued_at < since).then_some(*vtime)
    }

    /// The first one that waits on `from` and may run on `cpu` is next there.
    fn take_first(&mut self, from: u32, cpu: u32) -> bool {
        let Some(pcpu) = self.pcpus.get(from as usize) else { return false };
        let may = |task: &Task| from == cpu || self.may_run(*task, cpu);
        let Some(task) = pcpu.queue.iter().map(|(_, _, task)| *task).find(may) else { return false };
        self.put_next(task, cpu);
        true
    }

    fn may_run(&self, task: Task, cpu: u32) -> bool {
        self.tasks.get(&task).is_some_and(|task| task.allowed & 1 << cpu != 0)
    }

    /// What the pCPU does next. `running`: who runs, and could go on.
    pub(super) fn choose(&mut self, at: u64, cpu: u32, running: Option<Task>) -> Choice {
        let own = running.map(|_| self.current_vtime(cpu, at));
        let first = self.first_vtime(cpu, None);
        if let Some(first) = first
            && let Some(choice) = self.urgent_decides(at, cpu, running.zip(own), first)
        {
            return choice;
        }
        let balance = self.header.balance_ns;
        if let Some(pcpu) = self.pcpu(cpu)
            && at.wrapping_sub(pcpu.balanced_at) >= balance
        {
            pcpu.balanced_at = at;
            let next = first.into_iter().chain(own).min().unwrap_or(u64::MAX);
            if self.pull(at, cpu, next) {
                return Choice::Pulled;
            }
        }
        // Nobody that waits is before who runs.
        let stays = own.is_some_and(|own| first.is_none_or(|first| own <= first));
        if !stays {
            if self.take_first(cpu, cpu) {
                return Choice::First;
            }
            if self.steal(cpu) {
                return Choice::Stolen;
            }
        }
        if running.is_some() { Choice::GoesOn } else { Choice::Idle }
    }

    /// Takes over the task that is furthest behind on another pCPU, if it is by more than two slices behind `next`, and has
    /// waited for half a slice.
    fn pull(&mut self, at: u64, cpu: u32, next: u64) -> bool {
        let since = at.wrapping_sub(self.header.slice_ns / 2);
        let others = (0..self.header.pcpus).filter(|other| *other != cpu);
        let furthest = others
            .filter_map(|other| Some((self.first_vtime(other, Some(since))?, other)))
            .min_by_key(|(vtime, _)| *vtime);
        let Some((behind, from)) = furthest else { return false };
        let Some(limit) = next.checked_sub(self.header.slice_ns.saturating_mul(2)) else { return false };
        limit > 0 && behind < limit && self.take_first(from, cpu)
    }

    /// Takes a task over from a pCPU with the same last-level cache, else from another one; the next by number first.
    fn steal(&mut self, cpu: u32) -> bool {
        let count = self.header.pcpus;
        let mut others: Vec<u32> = (1..count).map(|step| (cpu + step) % count).collect();
        // Stable: those alike stay in their order.
        others.sort_by_key(|other| self.llc(*other) != self.llc(cpu));
        others.into_iter().any(|other| self.take_first(other, cpu))
    }

    /// The last-level cache of a pCPU.
    pub(super) fn llc(&self, cpu: u32) -> u32 {
        self.header.llcs.get(cpu as usize).copied().unwrap_or_default()
    }
}
