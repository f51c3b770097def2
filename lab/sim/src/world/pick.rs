//! Which vCPU runs next on a pCPU, and where idle pCPUs find work.

use super::entity::{HostState, PcpuState, Phase};
use super::{Timer, World};
use crate::coscheduling::{Coscheduling, gang, too_far_ahead};
use crate::ids::{Ns, Pcpu, Vcpu};

/// A pCPU with a shorter average idle period does not pull work when it becomes idle (kernel:
/// `sysctl_sched_migration_cost`, `idle_balance`).
const MIGRATION_COST: Ns = 500_000;

impl World {
    /// The pCPU is free: runs the next vCPU, or pulls one, or idles.
    pub(super) fn dispatch(&mut self, p: Pcpu) {
        let can_pull = self.p(p).average_idle >= MIGRATION_COST;
        self.dispatch_from(p, can_pull);
    }

    /// The same; `can_pull`: whether it may pull a vCPU from elsewhere.
    fn dispatch_from(&mut self, p: Pcpu, can_pull: bool) {
        let from_idle = matches!(self.p(p).state, PcpuState::Idle | PcpuState::Polling(_));
        let Some(v) = self.take_next(p).or_else(|| if can_pull { self.steal(p) } else { None }) else {
            self.idle_pcpu(p);
            return;
        };
        self.settle(v);
        self.waiting -= 1;
        let costs = self.vm(v).costs;
        let last = self.p(p).last;
        let polls = self.v(v).phase == Phase::IdlePoll;
        let foreign = !polls && self.p(p).warm.is_some_and(|warm| warm != self.v(v).vm);
        let refill = if foreign { costs.cache_refill } else { 0 };
        let switch = match last {
            Some(last) if last == v || from_idle => costs.vcpu_wake,
            None => costs.vcpu_wake,
            Some(_) => costs.vcpu_switch,
        };
        // What remains of the delivery time of the interrupt that woke it.
        let late = self.v(v).arrives_at.saturating_sub(self.now);
        let vcpu = self.v_mut(v);
        vcpu.host = if from_idle { HostState::Waking } else { HostState::Waiting };
        vcpu.pcpu = p;
        self.switch_to(p, v, late + switch + refill);
    }

    fn switch_to(&mut self, p: Pcpu, v: Vcpu, ns: Ns) {
        self.p_mut(p).delayed = false;
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

    /// When the present turn ends, under strict coscheduling.
    pub(super) fn turn_ends(&self) -> Option<Ns> {
        match self.host.cosched {
            Coscheduling::Strict { slot_ns } => Some(gang(self.now, slot_ns, self.vms.len()).1),
            _ => None,
        }
    }

    /// Takes the next vCPU from the pCPU's runqueue: an urgent one, the target of a directed yield, or the
    /// fair scheduler's choice.
    fn take_next(&mut self, p: Pcpu) -> Option<Vcpu> {
        if self.p(p).queue.is_empty() {
            return None;
        }
        let fairest = self.fairest(p);
        let buddy = self.p_mut(p).buddy.take().filter(|b| self.p(p).queue.contains(b));
        let buddy = buddy.filter(|b| fairest.is_none_or(|f| self.may_run_before(p, *b, f)));
        let urgent = self.next_urgent(p);
        self.p_mut(p).urgent_turn = urgent.is_some();
        let chosen = urgent.or(buddy).or(fairest)?;
        let pcpu = self.p_mut(p);
        pcpu.urgent.retain(|v| *v != chosen);
        let place = pcpu.queue.iter().position(|v| *v == chosen)?;
        Some(pcpu.queue.swap_remove(place))
    }

    pub(super) fn fairest(&self, p: Pcpu) -> Option<Vcpu> {
        let queue = &self.p(p).queue;
        let free = self.host.cosched == Coscheduling::None;
        if let ([only], true) = (queue.as_slice(), free) {
            return Some(*only);
        }
        let eligible = |v: &&Vcpu| free || !self.must_wait(**v);
        // Relaxed coscheduling never leaves a pCPU idle while a vCPU waits for it.
        let relaxed = matches!(self.host.cosched, Coscheduling::Relaxed { .. });
        let key = |v: &&Vcpu| self.key(p, **v);
        queue
            .iter()
            .filter(eligible)
            .min_by_key(key)
            .or_else(|| queue.iter().filter(|_| relaxed).min_by_key(key))
            .copied()
    }

    /// An idle pCPU takes a vCPU from the longest runqueue.
    fn steal(&mut self, p: Pcpu) -> Option<Vcpu> {
        if self.waiting == 0 {
            return None;
        }
        let longest = self.longest(p, 1)?;
        let queue = &self.p(longest).queue;
        let fits = |v: &&Vcpu| !self.vm(**v).pinned && !self.must_wait(**v) && self.may_move(**v, p);
        let v = *queue.iter().find(fits)?;
        self.take_away(longest, v);
        self.enqueue_vcpu(p, v, false);
        self.p_mut(p).queue.retain(|o| *o != v);
        Some(v)
    }

    fn take_away(&mut self, p: Pcpu, v: Vcpu) {
        self.waiting -= 1;
        let pcpu = self.p_mut(p);
        pcpu.queue.retain(|o| *o != v);
        pcpu.urgent.retain(|o| *o != v);
    }

    /// The pCPU other than `p` with the longest runqueue, if at least `least`; nearby ones first.
    fn longest(&self, p: Pcpu, least: usize) -> Option<Pcpu> {
        let socket = self.p(p).socket;
        (0..self.pcpus.len())
            .map(Pcpu::at)
            .filter(|o| *o != p && self.p(*o).queue.len() >= least)
            .min_by_key(|o| (usize::MAX - self.p(*o).queue.len(), self.p(*o).socket != socket, o.0))
    }

    /// The host's periodic balancing: idle pCPUs pull waiting vCPUs, then one vCPU moves from the most to the
    /// least loaded runqueue, if that reduces the imbalance (kernel: `rebalance_domains`).
    pub(super) fn host_balance(&mut self) {
        self.set(Timer::Balance, self.now + self.host.balance_every);
        if self.waiting == 0 {
            return;
        }
        for p in (0..self.pcpus.len()).map(Pcpu::at) {
            if self.p(p).state == PcpuState::Idle && self.p(p).queue.is_empty() {
                self.dispatch_from(p, true);
            }
        }
        let all = || (0..self.pcpus.len()).map(Pcpu::at);
        let Some(least) = all().min_by_key(|p| (self.load(*p), p.0)) else { return };
        let waiting = all().filter(|p| *p != least && !self.p(*p).queue.is_empty());
        let Some(most) = waiting.min_by_key(|p| (u64::MAX - self.load(*p), p.0)) else { return };
        let fits = |v: &&Vcpu| {
            !self.vm(**v).pinned && self.may_move(**v, least) && self.load_with(least, **v) < self.load(most)
        };
        let Some(v) = self.p(most).queue.iter().find(fits).copied() else { return };
        self.take_away(most, v);
        self.enqueue_vcpu(least, v, false);
        self.notify(least, v);
    }
}
