//! Interrupts between vCPUs, and TLB shootdowns.

use super::entity::{HostState, Phase, Step, irq};
use super::{Timer, World};
use crate::ids::{FOREVER, Thread, Vcpu};

/// How quickly a spinning vCPU notices that it can continue.
const SPIN_LATENCY: u64 = 100;

impl World {
    /// Sends an interrupt from `from` to `to`. It arrives a little later. A halted vCPU is put on a runqueue
    /// at once, in its waker's exit (KVM: `kvm_vcpu_kick`); the delivery time is then part of the switch.
    pub(super) fn send(&mut self, from: Vcpu, to: Vcpu, bit: u8) {
        let at = self.now + self.vm(to).costs.ipi_deliver;
        let waker = self.v(from).pcpu;
        let vcpu = self.v_mut(to);
        if bit == irq::RESCHED {
            vcpu.counts.resched_ipis += 1;
        } else {
            vcpu.counts.flush_ipis += 1;
        }
        if matches!(vcpu.host, HostState::Blocked | HostState::Polled) {
            (vcpu.woken_from, vcpu.arrives_at) = (waker, at);
            self.raise(to, bit);
            return;
        }
        vcpu.in_flight |= bit;
        if !self.is_set(Timer::Irq(to)) {
            self.set(Timer::Irq(to), at);
        }
    }

    /// The interrupts in flight have arrived.
    pub(super) fn interrupts_arrive(&mut self, v: Vcpu) {
        let bits = std::mem::take(&mut self.v_mut(v).in_flight);
        self.raise(v, bits);
    }

    /// Makes interrupts pending; the vCPU takes them as soon as it can.
    pub(super) fn raise(&mut self, v: Vcpu, bits: u8) {
        let vcpu = self.v_mut(v);
        vcpu.pending |= bits;
        match vcpu.host {
            HostState::Blocked | HostState::Polled => self.host_wake(v),
            HostState::Running if vcpu.phase.interruptible() => self.interrupt(v),
            _ => {}
        }
    }

    /// The interrupt handler is done.
    pub(super) fn irq_done(&mut self, v: Vcpu) {
        let vcpu = self.v_mut(v);
        let pending = std::mem::take(&mut vcpu.pending);
        let (phase, left) = vcpu.saved;
        (vcpu.phase, vcpu.left) = (phase, left);
        if pending & irq::FLUSH != 0 {
            self.acknowledge(v);
        }
        if pending & irq::TIMER != 0 {
            self.wake_expired(v);
        }
        if pending & irq::TICK != 0 {
            self.v_mut(v).need_resched = true;
        }
        match phase {
            Phase::Halted | Phase::IdlePoll | Phase::IdleYield => self.idle_interrupted(v),
            Phase::User | Phase::UserSpin if self.must_switch(v) => {
                if let (Phase::User, Some(t)) = (phase, self.v(v).current) {
                    self.t_mut(t).left = left.max(1);
                }
                self.preempt_current(v);
            }
            _ => self.resume_phase(v),
        }
    }

    /// Wakes threads whose timers expired, on the vCPU that got the interrupt if it is active.
    fn wake_expired(&mut self, v: Vcpu) {
        let mut expired = std::mem::take(&mut self.v_mut(v).expired);
        for t in expired.drain(..) {
            let vm = self.v(v).vm;
            self.vms[vm.index()].timed -= 1;
            let target = if self.is_active(v) { v } else { self.place(t, v, false) };
            if self.enqueue(target, t, v) {
                self.send(v, target, irq::RESCHED);
            }
        }
        // Return the buffer, to avoid an allocation per event.
        self.v_mut(v).expired = expired;
    }

    /// A sleep or device wait is over: the timer's or device's interrupt goes to the thread's vCPU.
    pub(super) fn thread_timer(&mut self, t: Thread) {
        let v = self.t(t).vcpu;
        self.v_mut(v).expired.push(t);
        self.raise(v, irq::TIMER);
    }

    /// The other vCPUs that run a thread of the same program.
    fn flush_targets(&self, v: Vcpu) -> impl Iterator<Item = Vcpu> + '_ {
        let task = self.v(v).current.map(|t| self.t(t).task);
        let (pv_tlb, lazy_tlb) = (self.vm(v).pv_tlb, self.vm(v).lazy_tlb);
        self.vcpus_of(self.v(v).vm).filter(move |other| {
            let vcpu = self.v(*other);
            let runs = match vcpu.current {
                Some(current) => Some(self.t(current).task) == task,
                None => lazy_tlb && vcpu.last.is_some_and(|l| Some(self.t(l).task) == task) && vcpu.lazy,
            };
            // A halted or preempted vCPU flushes when it runs again (kernel: `kvm_flush_tlb_others`).
            let left_out = pv_tlb && !matches!(vcpu.host, HostState::Running | HostState::Polled);
            *other != v && runs && !left_out
        })
    }

    /// Starts a shootdown: in a VM, one exit per target vCPU (x2APIC in physical mode, as in KVM guests).
    pub(super) fn begin_flush(&mut self, v: Vcpu) {
        self.accesses_apic(v);
        let targets = self.flush_targets(v).count() as u64;
        let costs = self.vm(v).costs;
        let ns = costs.syscall + targets * costs.flush_send;
        self.kernel(v, Step::SendFlush, ns);
    }

    /// The interrupts of a shootdown were sent.
    pub(super) fn send_flushes(&mut self, v: Vcpu) {
        let Some(t) = self.v(v).current else { return };
        let mut targets = std::mem::take(&mut self.v_mut(v).flushed);
        targets.extend(self.flush_targets(v));
        self.v_mut(v).acks = u32::try_from(targets.len()).unwrap_or(u32::MAX);
        self.t_mut(t).step = 1;
        for other in targets.drain(..) {
            let now = self.now;
            let recipient = self.v_mut(other);
            if recipient.callers.is_empty() {
                recipient.asked_at = now;
            }
            recipient.callers.push(v);
            self.send(v, other, irq::FLUSH);
            self.flush_sent(v, other);
        }
        // Return the buffer, to avoid an allocation per event.
        self.v_mut(v).flushed = targets;
        if self.v(v).acks == 0 {
            self.return_to_user(v);
        } else {
            self.begin(v, Phase::AckSpin, FOREVER);
            self.watch_spin(v);
        }
    }

    /// The vCPU has flushed; every initiator that waits for it has one acknowledgement less to wait for.
    fn acknowledge(&mut self, v: Vcpu) {
        let now = self.now;
        let vcpu = self.v_mut(v);
        if !vcpu.callers.is_empty() {
            vcpu.counts.flush_answers += 1;
            vcpu.counts.flush_answer_ns += now - vcpu.asked_at;
        }
        let mut callers = std::mem::take(&mut self.v_mut(v).callers);
        for caller in callers.drain(..) {
            let vcpu = self.v_mut(caller);
            vcpu.urgency.answered();
            vcpu.acks -= 1;
            if vcpu.acks == 0 && vcpu.phase == Phase::AckSpin {
                self.nudge(caller, SPIN_LATENCY);
            }
        }
        let vcpu = self.v_mut(v);
        vcpu.callers = callers;
        // An idle vCPU is not interrupted again.
        vcpu.lazy &= vcpu.current.is_some();
        self.flush_acknowledged(v);
    }

    /// Continues to spin, or stops if all acknowledgements are there.
    pub(super) fn spin_for_acks(&mut self, v: Vcpu) {
        if self.v(v).acks == 0 {
            self.nudge(v, SPIN_LATENCY);
        } else {
            self.watch_spin(v);
        }
    }

    /// The spin ended: all acknowledgements are there, or the hardware detected the spinning.
    pub(super) fn ack_spin_over(&mut self, v: Vcpu) {
        if self.v(v).acks == 0 {
            self.return_to_user(v);
        } else {
            self.pause_exit(v);
        }
    }
}
