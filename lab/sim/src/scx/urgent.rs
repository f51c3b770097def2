//! Interrupts between vCPUs make them urgent, and urgent vCPUs run first (`urgent.bpf.h`).

use gleaner_coordination::halted_soon;
use gleaner_coordination::record::{Choice, Decision, Means, Task};

use super::host::{Host, Running};

/// Of more senders of shootdowns nobody knows that they wait.
const ASKERS: usize = 4;

impl Host {
    /// A vCPU sent another one an interrupt.
    pub(super) fn interrupt(&mut self, at: u64, from: Task, to: Task, means: Means, halted: bool) {
        // Guests also wake idle vCPUs by function calls, and send those no shootdowns.
        let means = if halted { Means::Reschedule } else { means };
        let (of_sender, rules) = (self.rules_of(from), self.rules_of(to));
        if means == Means::Reschedule {
            let sender = self.task(from);
            if halted {
                sender.woke_at = at;
            }
            sender.urgency.for_time(at, of_sender.resched_dp_ns);
            if of_sender.resched_dp_ns > 0 {
                self.runs_urgently(from);
            }
        }
        if means == Means::Shootdown && of_sender.tlb_wait && self.task(to).askers.len() < ASKERS {
            self.task(to).askers.push(from);
            self.task(from).urgency.awaits(1);
        }
        match means {
            Means::Shootdown if rules.tlb_co => {
                self.make_urgent(at, to);
                self.task(to).urgency.for_event();
                self.runs_urgently(to);
            }
            Means::Reschedule if rules.resched_co_ns > 0 => {
                self.urgent_for(at, to, rules.resched_co_ns);
            }
            _ => return,
        }
        self.reconsider(to, Some(from));
    }

    /// KVM has delivered what a vCPU sent, which it has before the guest goes on.
    pub(super) fn delivered(&mut self, from: Task) {
        if let Some(cpu) = self.task(from).owes.take() {
            self.decisions.push(Decision::Kicked { cpu, idle: false });
        }
    }

    /// A vCPU acknowledged the shootdowns that it got.
    pub(super) fn acknowledges(&mut self, task: Task) {
        self.delivered(task);
        let own = self.task(task);
        own.urgency.acknowledge();
        for asker in std::mem::take(&mut own.askers) {
            self.task(asker).urgency.answered();
        }
    }

    fn make_urgent(&mut self, at: u64, task: Task) {
        let own = self.task(task);
        if !own.urgency.is_urgent(at) {
            own.urgent_since = at;
        }
    }

    /// The task became urgent. If it runs, its pCPU has to be asked whether another one preempts it.
    pub(super) fn runs_urgently(&mut self, task: Task) {
        let own = self.task(task);
        if let Some(cpu) = own.counted.filter(|_| own.runs)
            && let Some(pcpu) = self.pcpu(cpu)
        {
            pcpu.running = Running::Urgent;
        }
    }

    /// It is to run first for so long.
    fn urgent_for(&mut self, at: u64, task: Task, ns: u64) {
        self.make_urgent(at, task);
        let own = self.task(task);
        if own.runs {
            own.urgency.for_time(at, ns);
            self.runs_urgently(task);
        } else {
            own.urgency.once_it_runs(ns);
        }
    }

    /// The task became urgent: if it waits for a pCPU, that pCPU decides anew. If it waits where the `sender` of an interrupt
    /// for it runs, that is when KVM has delivered it.
    fn reconsider(&mut self, task: Task, sender: Option<Task>) {
        let own = self.task(task);
        let Some(cpu) = own.counted.filter(|_| !own.runs) else { return };
        let Some(pcpu) = self.pcpu(cpu) else { return };
        pcpu.urgent = true;
        match sender.map(|sender| self.task(sender)).filter(|sender| sender.counted == Some(cpu)) {
            Some(sender) => sender.owes = Some(cpu),
            None => self.decisions.push(Decision::Kicked { cpu, idle: false }),
        }
    }

    /// A vCPU halts, after it woke a sibling.
    pub(super) fn halts(&mut self, at: u64, task: Task) {
        self.delivered(task);
        let follow = self.header.follow_ns;
        let own = self.task(task);
        // The wakee may have run first.
        let from = own.ran_from.max(own.woke_at);
        own.halted_soon = halted_soon(own.halted_soon, at.wrapping_sub(from) <= follow);
        own.woke_at = 0;
    }

    /// A pause-loop exit.
    pub(super) fn spins(&mut self, at: u64, task: Task) {
        self.delivered(task);
        let rules = self.rules_of(task);
        let own = self.task(task);
        if own.urgency.is_urgent(at) {
            own.urgency.spins(&rules);
        }
    }

    /// Whether `from` gives its pCPU away for `to`, which then runs first for an urgent slice.
    pub(super) fn gives_way(&mut self, at: u64, from: Task, to: Task) -> bool {
        let (rules, slice) = (self.rules_of(from), self.rules_of(to).slice_ns);
        if self.task(to).vm.is_none() || !self.task(from).urgency.spins(&rules) {
            return false;
        }
        self.urgent_for(at, to, slice);
        self.reconsider(to, None);
        true
    }

    /// What runs next, if an urgent vCPU decides that: `running`, with its virtual time, which goes on if it is protected,
    /// another one, or `running` again if it is the only one. `first`: the lowest virtual time of those who wait.
    pub(super) fn urgent_decides(
        &mut self,
        at: u64,
        cpu: u32,
        running: Option<(Task, u64)>,
        first: u64,
    ) -> Option<Choice> {
        let slice_from = self.pcpu(cpu)?.slice_from;
        let urgent = running.and_then(|(task, own)| {
            let (rules, share) = (self.rules_of(task), self.share_of(task));
            let urgency = self.task(task).urgency;
            // Not if it has taken more than its allowance from those who wait.
            (urgency.is_urgent(at) && rules.may_preempt(share, own, first)).then_some((urgency, rules))
        });
        if let Some((urgency, rules)) = urgent {
            self.pcpu(cpu)?.running = Running::Urgent;
            let left = urgency.protected_for(at, slice_from, rules.slice_ns);
            if left > 0 {
                self.decide_in(cpu, left, at);
                return Some(Choice::Protected);
            }
        }
        let other = running.map_or(first, |(_, own)| own.min(first));
        if self.pcpu(cpu)?.urgent && self.run_urgent(at, cpu, other) {
            return Some(Choice::Urgent);
        }
        let (_, rules) = urgent?;
        self.pcpu(cpu)?.slice_from = at;
        self.decide_in(cpu, rules.slice_ns, at);
        Some(Choice::UrgentGoesOn)
    }

    /// The urgent vCPU that has waited longest here is next, if fairness allows. `other`: the virtual time of who would run
    /// else.
    fn run_urgent(&mut self, at: u64, cpu: u32, other: u64) -> bool {
        let Some(pcpu) = self.pcpus.get(cpu as usize) else { return false };
        let waiting: Vec<(u64, Task)> = pcpu.queue.iter().map(|(vtime, _, task)| (*vtime, *task)).collect();
        let (mut waits, mut oldest) = (false, None);
        for (vtime, task) in waiting {
            let (rules, share) = (self.rules_of(task), self.share_of(task));
            let own = self.task(task);
            if !own.urgency.is_urgent(at) {
                continue;
            }
            waits = true;
            let since = own.urgent_since;
            if oldest.is_none_or(|(oldest, _)| since < oldest) && rules.may_preempt(share, vtime, other) {
                oldest = Some((since, task));
            }
        }
        if let Some(pcpu) = self.pcpu(cpu) {
            pcpu.urgent &= waits;
        }
        let Some((_, task)) = oldest else { return false };
        let slice = self.rules_of(task).slice_ns;
        // At the end of its slice it is the last of the urgent ones.
        self.task(task).urgent_since = at.saturating_add(slice);
        self.put_next(task, cpu);
        self.decide_in(cpu, slice, at);
        true
    }
}
