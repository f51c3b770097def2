//! The hypervisor: scheduling vCPUs on pCPUs, halting and waking them.

use super::entity::{HostState, PcpuState, Phase, Step};
use super::{Timer, World};
use crate::ids::{Ns, Pcpu, Vcpu};

/// Initial halt-poll interval (KVM: `halt_poll_ns_grow_start`).
const HALT_POLL_START: Ns = 10_000;

/// Cap for a pCPU's idle periods in their average (kernel: twice `sysctl_sched_migration_cost`).
const MAX_IDLE_SAMPLE: Ns = 1_000_000;

impl World {
    /// Accounts for the pCPU's time until now.
    pub(super) fn settle_pcpu(&mut self, p: Pcpu) {
        let now = self.now;
        let pcpu = self.p_mut(p);
        let elapsed = now - pcpu.since;
        pcpu.since = now;
        match pcpu.state {
            PcpuState::Idle => pcpu.idle += elapsed,
            PcpuState::Switching(_) => pcpu.overhead += elapsed,
            PcpuState::Running(_) => pcpu.guest += elapsed,
            PcpuState::Polling(_) => pcpu.polling += elapsed,
        }
    }

    pub(super) fn enter(&mut self, p: Pcpu, state: PcpuState) {
        self.settle_pcpu(p);
        let was_busy = self.p(p).state != PcpuState::Idle;
        let now = self.now;
        let pcpu = self.p_mut(p);
        if was_busy {
            pcpu.idle_from = now;
        } else if state != PcpuState::Idle {
            let period = now - pcpu.idle_from;
            // The kernel's `update_avg`, capped as in `ttwu_do_wakeup`.
            pcpu.average_idle =
                if period > MAX_IDLE_SAMPLE { MAX_IDLE_SAMPLE } else { (pcpu.average_idle * 7 + period) / 8 };
        }
        pcpu.state = state;
        if was_busy != (state != PcpuState::Idle)
            && let Some(sibling) = self.p(p).sibling
        {
            self.change_speed(sibling);
        }
    }

    /// Updates speeds after the pCPU became busy or idle, which affects its sibling.
    fn change_speed(&mut self, p: Pcpu) {
        if let PcpuState::Running(v) = self.p(p).state {
            self.settle(v);
            let speed = self.speed(v, p);
            self.v_mut(v).speed = speed;
            self.arm(v);
        }
    }

    /// Speed of the vCPU on the pCPU, in work per 1000 ns.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 1000")]
    fn speed(&self, v: Vcpu, p: Pcpu) -> u64 {
        let mut speed = 1.0;
        let pcpu = self.p(p);
        if pcpu.sibling.is_some_and(|s| self.p(s).state != PcpuState::Idle) {
            speed *= self.host.smt_speed;
        }
        // A VM's memory is spread over the sockets in the order of its vCPUs.
        let vm = self.vm(v);
        let home = self.v(v).cpu * self.host.sockets / vm.vcpus;
        if self.host.sockets > 1 && home != pcpu.socket {
            speed *= self.host.numa_speed;
        }
        ((speed * 1000.0) as u64).max(1)
    }

    /// Timer of the pCPU: a switch is complete, or a slice or poll has ended.
    pub(super) fn pcpu_timer(&mut self, p: Pcpu) {
        match self.p(p).state {
            PcpuState::Switching(v) => {
                self.enter(p, PcpuState::Running(v));
                let speed = self.speed(v, p);
                self.v_mut(v).speed = speed;
                let now = self.now;
                let vcpu = self.v_mut(v);
                let warms = (vcpu.phase != Phase::IdlePoll).then_some(vcpu.vm);
                let pcpu = self.p_mut(p);
                (pcpu.slice_from, pcpu.charged, pcpu.last) = (now, now, Some(v));
                pcpu.warm = warms.or(pcpu.warm);
                self.arm_pcpu(p);
                self.resume(v);
                self.preempt_after_switch(p, v);
            }
            PcpuState::Running(v) => self.slice_over(p, v),
            PcpuState::Polling(v) => {
                let vcpu = self.v_mut(v);
                vcpu.counts.host_polls_lost += 1;
                self.stop_polling(p, v);
                self.dispatch(p);
            }
            PcpuState::Idle => self.dispatch(p),
        }
    }

    fn slice_over(&mut self, p: Pcpu, v: Vcpu) {
        let pcpu = self.p(p);
        let must_wait = self.must_wait(v);
        if pcpu.queue.is_empty() && !must_wait {
            return;
        }
        let urgent = pcpu.urgent_turn || !pcpu.urgent.is_empty();
        self.charge(p);
        let due = urgent || must_wait || self.turn_ends().is_some() || self.preemption_is_due(p, v);
        if !due && !self.slice_ended(p, v) {
            self.p_mut(p).delayed = false;
            self.arm_pcpu(p);
            return;
        }
        let protected = self.protection(v);
        if protected > 0 {
            self.set(Timer::Pcpu(p), self.now + protected);
        } else {
            self.preempt(p);
        }
    }

    /// Slices only end if another vCPU waits: at a tick, or at the end of an urgent vCPU's short slice.
    pub(super) fn arm_pcpu(&mut self, p: Pcpu) {
        let PcpuState::Running(v) = self.p(p).state else { return };
        let pcpu = self.p(p);
        if let Some(ends) = self.turn_ends() {
            self.set(Timer::Pcpu(p), ends);
            return;
        }
        if pcpu.queue.is_empty() {
            return;
        }
        let at = if pcpu.urgent_turn || !pcpu.urgent.is_empty() {
            (pcpu.slice_from + self.rules(v).slice_ns).max(self.now)
        } else {
            (self.now / self.host.tick + 1) * self.host.tick
        };
        self.set(Timer::Pcpu(p), at);
    }

    /// The vCPU halted.
    pub(super) fn host_halt(&mut self, v: Vcpu) {
        self.settle(v);
        let p = self.v(v).pcpu;
        self.charge(p);
        self.cancel(Timer::Work(v));
        self.cancel(Timer::Pcpu(p));
        let now = self.now;
        let vcpu = self.v_mut(v);
        vcpu.blocked_at = Some(now);
        // The reason for its urgency is gone.
        vcpu.urgency.end();
        let poll = vcpu.halt_poll;
        self.vm_mut(v).wakes(now, -1);
        self.part(p, v);
        if poll > 0 && self.p(p).queue.is_empty() {
            self.v_mut(v).host = HostState::Polled;
            self.enter(p, PcpuState::Polling(v));
            self.set(Timer::Pcpu(p), now + poll);
        } else {
            self.v_mut(v).host = HostState::Blocked;
            self.dispatch(p);
        }
    }

    fn stop_polling(&mut self, p: Pcpu, v: Vcpu) {
        self.settle(v);
        self.charge(p);
        self.v_mut(v).host = HostState::Blocked;
        self.cancel(Timer::Pcpu(p));
    }

    /// An interrupt is pending for a halted vCPU.
    pub(super) fn host_wake(&mut self, v: Vcpu) {
        self.settle(v);
        let now = self.now;
        self.vm_mut(v).wakes(now, 1);
        if self.v(v).host == HostState::Polled {
            self.learn_halt(v);
            let p = self.v(v).pcpu;
            self.charge(p);
            self.join(p, p, v, true);
            self.v_mut(v).counts.host_polls_won += 1;
            self.v_mut(v).host = HostState::Waking;
            self.enter(p, PcpuState::Switching(v));
            let ns = self.vm(v).costs.host_poll_wake + self.v(v).arrives_at.saturating_sub(now);
            self.set(Timer::Pcpu(p), now + ns);
            return;
        }
        let p = self.choose_pcpu(v);
        self.enqueue_vcpu(p, v, true);
        self.v_mut(v).woken_from = p;
        self.notify(p, v);
    }

    /// KVM's adaptive halt polling (`virt/kvm/kvm_main.c`: `grow_halt_poll_ns`, `shrink_halt_poll_ns`). A
    /// halt longer than the poll lasts until the vCPU runs again.
    pub(super) fn learn_halt(&mut self, v: Vcpu) {
        let (now, max) = (self.now, self.vm(v).halt_poll_max);
        let vcpu = self.v_mut(v);
        let Some(length) = vcpu.blocked_at.take().map(|at| now - at) else { return };
        if max == 0 || length <= vcpu.halt_poll {
            return;
        }
        if length < max {
            vcpu.halt_poll = (vcpu.halt_poll * 2).max(HALT_POLL_START).min(max);
        } else {
            vcpu.halt_poll = 0;
        }
    }

    /// Puts the vCPU on the pCPU's runqueue.
    pub(super) fn enqueue_vcpu(&mut self, p: Pcpu, v: Vcpu, woken: bool) {
        self.settle(v);
        // Virtual times are relative to the runqueue, so both queues must be up to date for a move.
        let from = self.v(v).pcpu;
        self.charge(from);
        self.charge(p);
        if !woken {
            self.part(from, v);
        }
        self.join(p, from, v, woken);
        let vcpu = self.v_mut(v);
        vcpu.host = HostState::Waiting;
        vcpu.pcpu = p;
        self.waiting += 1;
        self.p_mut(p).queue.push(v);
        self.queue_urgent(p, v);
    }

    /// A vCPU was added to the pCPU's runqueue: runs it at once if it preempts.
    pub(super) fn notify(&mut self, p: Pcpu, v: Vcpu) {
        match self.p(p).state {
            PcpuState::Idle => self.dispatch(p),
            PcpuState::Polling(other) => {
                self.stop_polling(p, other);
                self.dispatch(p);
            }
            PcpuState::Running(current) => {
                self.charge(p);
                if !self.preempts(p, v, current) {
                    self.arm_pcpu(p);
                } else if self.preempt_unprotected(p, current) {
                    return;
                }
                self.watch_spins_of(v);
            }
            PcpuState::Switching(next) => {
                self.delay_until_switched(p, v, next);
                self.watch_spins_of(v);
            }
        }
    }

    /// Counts a preemption, and what the vCPU does if it holds a spinlock.
    fn count_preemption(&mut self, v: Vcpu) {
        let holds = self.v(v).lock.is_some_and(|o| self.o(o).queue.owner == Some(v));
        let vcpu = self.v_mut(v);
        // One that spins has got the lock without having noticed.
        let at = if vcpu.phase == Phase::Kernel { vcpu.step } else { vcpu.after.0 };
        vcpu.counts.preempted += 1;
        vcpu.counts.lock_holder_preempted += u64::from(holds);
        vcpu.counts.waiting_holder_preempted += u64::from(holds && at == Step::Wait);
        vcpu.counts.sending_holder_preempted += u64::from(holds && matches!(at, Step::SendIpi(_)));
    }

    /// Preempts the pCPU's vCPU.
    pub(super) fn preempt(&mut self, p: Pcpu) {
        let PcpuState::Running(v) = self.p(p).state else { return };
        self.settle(v);
        self.charge(p);
        self.cancel(Timer::Work(v));
        self.cancel(Timer::Pcpu(p));
        self.count_preemption(v);
        let vcpu = self.v_mut(v);
        vcpu.preempted = true;
        vcpu.host = HostState::Waiting;
        self.waiting += 1;
        self.p_mut(p).queue.push(v);
        // An urgent vCPU whose slice was too short waits at the tail of the urgent queue (ASPLOS'13 §3.1.3).
        self.queue_urgent(p, v);
        self.watch_spins_of(v);
        self.dispatch(p);
    }
}
