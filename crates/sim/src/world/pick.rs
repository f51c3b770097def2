//! Who runs next on a pCPU, and where idle pCPUs find work.

use gleaner_policy::host::{Coscheduling, gang, too_far_ahead};

use super::entity::{HostState, PcpuState};
use super::{Timer, World};
use crate::ids::{Ns, Pcpu, Vcpu};

impl World {
    /// The pCPU is free: the next vCPU, or one from elsewhere, or none.
    pub(super) fn dispatch(&mut self, p: Pcpu) {
        let from_idle = matches!(self.p(p).state, PcpuState::Idle | PcpuState::Polling(_));
        let Some(v) = self.take_next(p).or_else(|| self.steal(p)) else {
            self.idle_pcpu(p);
            return;
        };
        self.settle(v);
        self.waiting -= 1;
        let costs = self.vm(v).costs;
        let last = self.p(p).last;
        let foreign = last.is_some_and(|l| self.v(l).vm != self.v(v).vm);
        let refill = if foreign { costs.cache_refill } else { 0 };
        let switch = match last {
            Some(last) if last == v || from_idle => costs.vcpu_wake,
            None => costs.vcpu_wake,
            Some(_) => costs.vcpu_switch,
        };
        let vcpu = self.v_mut(v);
        vcpu.host = if from_idle { HostState::Waking } else { HostState::Waiting };
        vcpu.pcpu = p;
        self.switch_to(p, v, switch + refill);
    }

    fn switch_to(&mut self, p: Pcpu, v: Vcpu, ns: Ns) {
        self.enter(p, PcpuState::Switching(v));
        self.set(Timer::Pcpu(p), self.now + ns);
    }

    fn idle_pcpu(&mut self, p: Pcpu) {
        self.enter(p, PcpuState::Idle);
        match self.turn_ends().filter(|_| !self.p(p).queue.is_empty()) {
            Some(ends) => self.set(Timer::Pcpu(p), ends),
            None => self.cancel(Timer::Pcpu(p)),
        }
    }

    /// Whether the coscheduling rule keeps the vCPU from running now.
    pub(super) fn must_wait(&self, v: Vcpu) -> bool {
        match self.host.cosched {
            Coscheduling::None => false,
            Coscheduling::Strict { slot_ns } => {
                gang(self.now, slot_ns, self.vms.len()).0 != self.v(v).vm.index()
            }
            Coscheduling::Relaxed { skew_ns } => {
                let vm = self.vm(v);
                let siblings = (vm.first..vm.first + vm.vcpus).map(|o| self.v(Vcpu(o)));
                let slowest =
                    siblings.filter(|o| o.host == HostState::Waiting).map(|o| o.entity.vruntime).min();
                slowest.is_some_and(|s| too_far_ahead(self.v(v).entity.vruntime, s, skew_ns))
            }
        }
    }

    /// With strict coscheduling, when the present turn ends.
    pub(super) fn turn_ends(&self) -> Option<Ns> {
        match self.host.cosched {
            Coscheduling::Strict { slot_ns } => Some(gang(self.now, slot_ns, self.vms.len()).1),
            _ => None,
        }
    }

    /// Takes the next vCPU from the pCPU's runqueue: an urgent one, one that a directed yield asked for, or the one that the
    /// fair scheduler picks.
    fn take_next(&mut self, p: Pcpu) -> Option<Vcpu> {
        if self.p(p).queue.is_empty() {
            return None;
        }
        let buddy = self.p_mut(p).buddy.take().filter(|b| self.p(p).queue.contains(b));
        let urgent = self.next_urgent(p);
        self.p_mut(p).urgent_turn = urgent.is_some();
        let chosen = urgent.or(buddy).or_else(|| self.fairest(p))?;
        let queue = &mut self.p_mut(p).queue;
        let place = queue.iter().position(|v| *v == chosen)?;
        Some(queue.swap_remove(place))
    }

    fn fairest(&self, p: Pcpu) -> Option<Vcpu> {
        let queue = &self.p(p).queue;
        let fair = self.host.fair;
        let free = self.host.cosched == Coscheduling::None;
        let may = |v: &&Vcpu| free || !self.must_wait(**v);
        // Relaxed coscheduling never leaves a pCPU idle while somebody waits for it.
        let relaxed = matches!(self.host.cosched, Coscheduling::Relaxed { .. });
        let key = |v: &&Vcpu| (fair.key(&self.v(**v).entity), v.0);
        queue
            .iter()
            .filter(may)
            .min_by_key(key)
            .or_else(|| queue.iter().filter(|_| relaxed).min_by_key(key))
            .copied()
    }

    /// An idle pCPU takes a waiting vCPU from the longest runqueue.
    fn steal(&mut self, p: Pcpu) -> Option<Vcpu> {
        if self.waiting == 0 {
            return None;
        }
        let longest = self.longest(p, 1)?;
        let queue = &self.p(longest).queue;
        let fits = |v: &&Vcpu| !self.vm(**v).pinned && !self.must_wait(**v) && self.may_move(**v, p);
        let v = *queue.iter().find(fits)?;
        self.waiting -= 1;
        self.p_mut(longest).queue.retain(|o| *o != v);
        self.p_mut(longest).urgent.retain(|o| *o != v);
        self.enqueue_vcpu(p, v, false);
        self.p_mut(p).queue.retain(|o| *o != v);
        Some(v)
    }

    /// The pCPU other than `p` with the longest runqueue, of at least `least`; near ones first.
    fn longest(&self, p: Pcpu, least: usize) -> Option<Pcpu> {
        let socket = self.p(p).socket;
        (0..self.pcpus.len())
            .map(Pcpu::at)
            .filter(|o| *o != p && self.p(*o).queue.len() >= least)
            .min_by_key(|o| (usize::MAX - self.p(*o).queue.len(), self.p(*o).socket != socket, o.0))
    }

    /// The host evens out its queues: one vCPU from the longest to the shortest, if they differ by two.
    pub(super) fn host_balance(&mut self) {
        self.set(Timer::Balance, self.now + self.host.balance_every);
        if self.waiting == 0 {
            return;
        }
        let load = |p: &Pcpu| {
            let pcpu = self.p(*p);
            pcpu.queue.len() + usize::from(!matches!(pcpu.state, PcpuState::Idle | PcpuState::Polling(_)))
        };
        let all = || (0..self.pcpus.len()).map(Pcpu::at);
        let Some(least) = all().min_by_key(|p| (load(p), p.0)) else { return };
        let Some(most) = all().min_by_key(|p| (usize::MAX - load(p), p.0)) else { return };
        if load(&most) < load(&least) + 2 {
            return;
        }
        let fits = |v: &&Vcpu| !self.vm(**v).pinned && self.may_move(**v, least);
        let Some(v) = self.p(most).queue.iter().find(fits).copied() else { return };
        self.waiting -= 1;
        self.p_mut(most).queue.retain(|o| *o != v);
        self.p_mut(most).urgent.retain(|o| *o != v);
        self.enqueue_vcpu(least, v, false);
        self.notify(least, v);
    }
}
