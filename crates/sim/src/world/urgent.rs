//! The demand for coordination: interrupts make vCPUs urgent, and spinning in vain hands the pCPU over.

use gleaner_policy::host::{DirectedYield, Spinner, yield_target};

use super::World;
use super::entity::{HostState, PcpuState, Phase};
use crate::ids::{Ns, Pcpu, Vcpu};

/// A spin of the hardware's pause-loop window: 4096 cycles (ASPLOS'13 §4.3) at about 2.4 GHz.
const PAUSE_WINDOW: Ns = 1_700;
/// The longest window to which vain exits grow it (KVM: `ple_window_grow` 2).
const PAUSE_WINDOW_MAX: Ns = 400_000;

impl World {
    /// A reschedule interrupt left `from` for `to`.
    pub(super) fn resched_sent(&mut self, from: Vcpu, to: Vcpu) {
        let config = self.host.urgent;
        let now = self.now;
        if config.resched_dp_ns > 0 {
            self.v_mut(from).urgency.for_time(now, config.resched_dp_ns);
        }
        if config.resched_co_ns > 0 {
            self.v_mut(to).urgency.for_time(now, config.resched_co_ns);
            self.become_urgent(to);
        }
    }

    /// The interrupt of a TLB shootdown left for `to`.
    pub(super) fn flush_sent(&mut self, to: Vcpu) {
        if self.host.urgent.tlb_co {
            self.v_mut(to).urgency.for_event();
            self.become_urgent(to);
        }
    }

    /// Every shootdown is acknowledged.
    pub(super) fn flush_acknowledged(&mut self, v: Vcpu) {
        self.v_mut(v).urgency.acknowledge();
    }

    /// A vCPU that became urgent while it waits runs first, if fairness allows.
    fn become_urgent(&mut self, v: Vcpu) {
        if self.v(v).host != HostState::Waiting {
            return;
        }
        let p = self.v(v).pcpu;
        let pcpu = self.p_mut(p);
        if !pcpu.queue.contains(&v) {
            return;
        }
        if !pcpu.urgent.contains(&v) {
            pcpu.urgent.push_back(v);
        }
        self.charge(p);
        if let PcpuState::Running(current) = self.p(p).state
            && self.overrides(v, current)
            && self.protection(current) == 0
        {
            self.preempt(p);
        }
    }

    /// Whether `v` runs before `current` although the fair scheduler would not have it so.
    pub(super) fn overrides(&self, v: Vcpu, current: Vcpu) -> bool {
        let own = self.v(v);
        own.urgency.is_urgent(self.now)
            && self.host.urgent.may_preempt(own.entity.vruntime, self.v(current).entity.vruntime)
    }

    /// The next urgent vCPU of the pCPU that may run now.
    pub(super) fn next_urgent(&mut self, p: Pcpu) -> Option<Vcpu> {
        let floor = self.p(p).floor;
        while let Some(v) = self.p_mut(p).urgent.pop_front() {
            let own = self.v(v);
            let still = own.urgency.is_urgent(self.now) && self.p(p).queue.contains(&v);
            if still && self.host.urgent.may_preempt(own.entity.vruntime, floor) {
                return Some(v);
            }
        }
        None
    }

    /// For how long the running vCPU must not be preempted. Not at all once it is ahead of those that wait by more than the
    /// allowance: who sends interrupts all the time would never be preempted.
    pub(super) fn protection(&self, v: Vcpu) -> Ns {
        let vcpu = self.v(v);
        let pcpu = self.p(vcpu.pcpu);
        let least = pcpu.queue.iter().map(|o| self.v(*o).entity.vruntime).min();
        if least.is_some_and(|least| !self.host.urgent.may_preempt(vcpu.entity.vruntime, least)) {
            return 0;
        }
        let from = pcpu.slice_from;
        vcpu.urgency.protected_for(self.now, from, self.host.urgent.slice_ns)
    }

    /// Lets the hardware watch a vCPU that spins in the kernel. Where no vCPU waits there is nobody to yield to.
    pub(super) fn watch_spin(&mut self, v: Vcpu) {
        if self.host.yielding == DirectedYield::Off || self.waiting == 0 || !self.vm(v).ple {
            return;
        }
        let window = self.v(v).pause_window.max(PAUSE_WINDOW);
        self.nudge(v, window);
    }

    /// A vCPU was preempted: siblings that spin may be waiting for it.
    pub(super) fn watch_spins_of(&mut self, v: Vcpu) {
        if self.host.yielding == DirectedYield::Off {
            return;
        }
        let vm = self.vm(v);
        for other in (vm.first..vm.first + vm.vcpus).map(Vcpu) {
            let spins = matches!(self.v(other).phase, Phase::LockSpin | Phase::AckSpin);
            if spins && self.running(other) && self.v(other).left == crate::ids::FOREVER {
                self.watch_spin(other);
            }
        }
    }

    /// The hardware noticed that the vCPU spins: somebody else may run.
    pub(super) fn pause_exit(&mut self, v: Vcpu) {
        let exit = self.vm(v).costs.pause_exit;
        let vcpu = self.v_mut(v);
        vcpu.counts.pause_exits += 1;
        vcpu.urgency.cancel();
        vcpu.left = crate::ids::FOREVER;
        let target = self.choose_yield_target(v);
        let vcpu = self.v_mut(v);
        vcpu.pause_window = match target {
            Some(_) => PAUSE_WINDOW,
            None => (vcpu.pause_window.max(PAUSE_WINDOW) * 2).min(PAUSE_WINDOW_MAX),
        };
        let window = vcpu.pause_window;
        self.nudge(v, window + exit);
        if let Some(target) = target {
            self.yield_to(v, target);
        }
    }

    fn choose_yield_target(&mut self, v: Vcpu) -> Option<Vcpu> {
        if self.waiting == 0 {
            return None;
        }
        let vm = self.vm(v);
        let (first, count, from) = (vm.first, vm.vcpus, vm.yield_from);
        let spinner = |o: Vcpu| {
            let vcpu = self.v(o);
            Spinner {
                preempted: vcpu.host == HostState::Waiting && o != v,
                interrupted: vcpu.pending != 0,
                spins: matches!(vcpu.phase, Phase::LockSpin | Phase::AckSpin),
            }
        };
        let vcpus: Vec<Spinner> = (first..first + count).map(|o| spinner(Vcpu(o))).collect();
        let chosen = yield_target(self.host.yielding, &vcpus, from as usize)?;
        let next = (Vcpu::at(chosen).0 + 1) % count;
        self.vm_mut(v).yield_from = next;
        Some(Vcpu(first + Vcpu::at(chosen).0))
    }

    /// Lets `target` run next where it waits (kernel: `yield_to` makes it the next buddy and preempts).
    fn yield_to(&mut self, v: Vcpu, target: Vcpu) {
        let p = self.v(target).pcpu;
        if !self.p(p).queue.contains(&target) || self.must_wait(target) {
            return;
        }
        self.p_mut(p).buddy = Some(target);
        if let PcpuState::Running(current) = self.p(p).state
            && (current == v || self.protection(current) == 0)
        {
            self.preempt(p);
        }
    }
}
