//! The guest's scheduler: runqueues per vCPU, wake placement, idle and periodic balance.

use gleaner_policy::Method;

use super::entity::{Phase, ThreadState};
use super::{Timer, World};
use crate::ids::{Ns, Thread, Vcpu, Vm};

/// A vCPU with a shorter average idle period does not pull work from others (kernel:
/// `sysctl_sched_migration_cost`).
const MIGRATION_COST: Ns = 500_000;
/// Interval of load balancing in a guest.
const BALANCE_INTERVAL: Ns = 4_000_000;

impl World {
    pub(super) fn is_active(&self, v: Vcpu) -> bool {
        self.vm(v).active[self.v(v).cpu as usize]
    }

    pub(super) fn set_idle_bit(&mut self, v: Vcpu, idle: bool) {
        let cpu = self.v(v).cpu as usize;
        let word = &mut self.vm_mut(v).idle_bits[cpu / 64];
        *word = if idle { *word | 1 << (cpu % 64) } else { *word & !(1 << (cpu % 64)) };
    }

    fn is_idle(&self, v: Vcpu) -> bool {
        let cpu = self.v(v).cpu as usize;
        self.vm(v).idle_bits[cpu / 64] >> (cpu % 64) & 1 == 1
    }

    /// Chooses a vCPU for `t`, woken by `waker` (kernel: `select_task_rq_fair`): its last one if that is
    /// idle, else an idle one, else the less loaded of its last one and the waker's.
    pub(super) fn place(&self, t: Thread, waker: Vcpu, sync: bool) -> Vcpu {
        let mut last = self.t(t).vcpu;
        if !self.is_active(last) {
            last = if self.is_active(waker) { waker } else { self.first_active(last) };
        }
        if self.is_available(last) {
            return last;
        }
        let near = self.is_active(waker);
        // The waker is about to sleep, and nothing else waits for its vCPU (kernel: `wake_affine_idle`).
        if sync && near && self.vm(last).halted_is_preempted && self.v(waker).queue.is_empty() {
            return waker;
        }
        if let Some(idle) = self.find_idle(last, |v| self.is_available(v)) {
            return idle;
        }
        if !near || waker == last || self.is_idle(last) {
            return last;
        }
        let load = |v: Vcpu| self.v(v).queue.len() + usize::from(self.v(v).current.is_some());
        let waker_load = if sync { load(waker).saturating_sub(1) } else { load(waker) };
        if waker_load < load(last) { waker } else { last }
    }

    /// Whether the vCPU counts as idle for wake placement (kernel: `available_idle_cpu`). A hypervisor that
    /// reports preempted vCPUs also reports halted ones as such.
    fn is_available(&self, v: Vcpu) -> bool {
        self.is_idle(v) && !(self.vm(v).halted_is_preempted && self.v(v).phase == Phase::Halted)
    }

    fn first_active(&self, v: Vcpu) -> Vcpu {
        let vm = self.vm(v);
        let cpu = vm.active.iter().position(|active| *active).unwrap_or(0);
        Vcpu::at(vm.first as usize + cpu)
    }

    /// The first idle active vCPU from `from` on, wrapping around, that satisfies `will`.
    fn find_idle(&self, from: Vcpu, will: impl Fn(Vcpu) -> bool) -> Option<Vcpu> {
        let vm = self.vm(from);
        if vm.idle_bits.iter().all(|word| *word == 0) {
            return None;
        }
        let (start, count) = (self.v(from).cpu as usize, vm.vcpus as usize);
        let words = vm.idle_bits.len();
        for step in 0..=words {
            let index = (start / 64 + step) % words;
            let mut word = vm.idle_bits[index];
            if step == 0 {
                word &= !0 << (start % 64);
            } else if step == words {
                word &= (1 << (start % 64)) - 1;
            }
            while word != 0 {
                let cpu = index * 64 + word.trailing_zeros() as usize;
                let found = Vcpu::at(vm.first as usize + cpu);
                if cpu < count && vm.active[cpu] && will(found) {
                    return Some(found);
                }
                word &= word - 1;
            }
        }
        None
    }

    /// Puts `t` on the runqueue of `target`. Returns whether that vCPU needs an interrupt.
    pub(super) fn enqueue(&mut self, target: Vcpu, t: Thread, waker: Vcpu) -> bool {
        let asleep = self.t(t).state != ThreadState::Ready;
        if asleep {
            self.vm_mut(target).ready += 1;
        }
        if self.is_throttled(target) {
            let now = self.now;
            let thread = self.t_mut(t);
            (thread.state, thread.ready_at) = (ThreadState::Ready, now);
            self.park(target, t);
            return false;
        }
        self.put(target, t);
        self.notify_vcpu(target, t, waker)
    }

    pub(super) fn queue_thread(&mut self, v: Vcpu, t: Thread) {
        self.v_mut(v).queue.push(t);
        self.vm_mut(v).queued += 1;
    }

    /// Puts `t` on the runqueue of `target`, without notifying that.
    fn put(&mut self, target: Vcpu, t: Thread) {
        self.settle(target);
        let now = self.now;
        let fair = self.vm(target).fair;
        let from = self.t(t).vcpu;
        if from != target {
            self.settle(from);
        }
        let (old_floor, floor) = (self.floor(from), self.floor(target));
        let thread = self.t_mut(t);
        if from != target {
            thread.entity.vruntime = (thread.entity.vruntime + floor).saturating_sub(old_floor);
        }
        fair.place(&mut thread.entity, floor);
        thread.state = ThreadState::Ready;
        thread.vcpu = target;
        thread.ready_at = now;
        self.queue_thread(target, t);
        self.set_idle_bit(target, false);
    }

    /// Minimum virtual run time on the vCPU; monotonic.
    fn floor(&mut self, v: Vcpu) -> Ns {
        let vcpu = self.v(v);
        let threads = vcpu.queue.iter().chain(&vcpu.current);
        let least = threads.map(|t| self.t(*t).entity.vruntime).min();
        let vcpu = self.v_mut(v);
        vcpu.floor = vcpu.floor.max(least.unwrap_or(0));
        vcpu.floor
    }

    /// Notifies `target` of `t` on its runqueue. Returns whether that takes an interrupt.
    fn notify_vcpu(&mut self, target: Vcpu, t: Thread, waker: Vcpu) -> bool {
        let vcpu = self.v(target);
        match vcpu.phase {
            // The idle loop polls the flag: no interrupt needed.
            Phase::IdlePoll => {
                let notice = self.vm(target).costs.poll_notice;
                self.nudge(target, notice);
                false
            }
            // The idle loop checks the flag until just before the halt.
            Phase::IdleEnter => false,
            // A yield thread yields by itself, even if the woken thread does not preempt it.
            Phase::IdleYield if self.vm(target).idle.method == Method::YieldIpiFree => {
                let round = self.vm(target).costs.yield_round;
                self.nudge(target, round / 2);
                false
            }
            phase if phase.idle() => target != waker && vcpu.queue.len() == 1,
            Phase::Irq if vcpu.saved.0.idle() => false,
            _ => {
                let batch = self.vm(target).idle.method == Method::YieldIpiFree;
                let fair = self.vm(target).fair;
                let current = vcpu.current.map(|c| self.t(c).entity);
                let preempts = current.is_some_and(|c| !batch && fair.preempts(&self.t(t).entity, &c));
                self.arm_slice(target);
                if preempts {
                    self.v_mut(target).need_resched = true;
                }
                preempts && target != waker
            }
        }
    }

    /// A slice only needs to end if another thread waits.
    fn arm_slice(&mut self, v: Vcpu) {
        if self.v(v).queue.is_empty() || self.is_set(Timer::Slice(v)) {
            return;
        }
        let vcpu = self.v(v);
        let Some(current) = vcpu.current else { return };
        let total = crate::sched::NICE_0 * (vcpu.queue.len() as u64 + 1);
        let slice = self.vm(v).fair.slice(&self.t(current).entity, total);
        self.set(Timer::Slice(v), self.now + slice);
    }

    /// Whether the current thread must be switched out before it returns to user mode.
    pub(super) fn must_switch(&self, v: Vcpu) -> bool {
        let vcpu = self.v(v);
        vcpu.need_resched && (!vcpu.queue.is_empty() || !self.is_active(v) || self.is_throttled(v))
    }

    /// Preempts the current thread, which returns to a runqueue.
    pub(super) fn preempt_current(&mut self, v: Vcpu) {
        self.settle(v);
        let Some(t) = self.v_mut(v).current.take() else { return };
        self.task_mut(t).totals.switches += 1;
        let now = self.now;
        self.t_mut(t).ready_at = now;
        if self.is_throttled(v) {
            self.park(v, t);
        } else if self.is_active(v) {
            self.queue_thread(v, t);
        } else {
            let target = self.place(t, v, false);
            if self.enqueue(target, t, v) {
                self.send(v, target, super::entity::irq::RESCHED);
            }
        }
        self.guest_schedule(v);
    }

    /// Schedules the next thread, or idles.
    pub(super) fn guest_schedule(&mut self, v: Vcpu) {
        self.v_mut(v).need_resched = false;
        self.cancel(Timer::Slice(v));
        if self.v(v).queue.is_empty() && (!self.is_active(v) || !self.pull(v)) {
            self.go_idle(v);
            return;
        }
        let fair = self.vm(v).fair;
        let queue = &self.v(v).queue;
        let Some(next) = (0..queue.len()).min_by_key(|i| fair.key(&self.t(queue[*i]).entity)) else { return };
        let t = self.v_mut(v).queue.swap_remove(next);
        self.vm_mut(v).queued -= 1;
        let vcpu = self.v_mut(v);
        let last = vcpu.last.replace(t);
        vcpu.current = Some(t);
        vcpu.lazy = true;
        let costs = self.vm(v).costs;
        let foreign = last.is_some_and(|l| self.t(l).task != self.t(t).task);
        let refill = if foreign { costs.thread_refill } else { 0 };
        self.begin(v, Phase::Switch, costs.context_switch + refill);
    }

    /// The switch to the current thread is done.
    pub(super) fn switched(&mut self, v: Vcpu) {
        let Some(t) = self.v(v).current else { return };
        let now = self.now;
        let thread = self.t_mut(t);
        thread.vcpu = v;
        let waited = now - thread.ready_at;
        let woken = thread.woken_at.take().map(|began| now - began + thread.owed);
        let totals = &mut self.task_mut(t).totals;
        totals.run_delay += waited;
        if let Some(ns) = woken {
            totals.wakes += 1;
            totals.wake_ns += ns;
        }
        self.arm_slice(v);
        self.return_to_user(v);
    }

    /// An idle vCPU pulls a thread from the longest runqueue, if its idle periods are long enough.
    fn pull(&mut self, v: Vcpu) -> bool {
        if self.v(v).average_idle < MIGRATION_COST {
            return false;
        }
        let Some(busiest) = self.busiest(v, 1) else { return false };
        self.migrate(busiest, v);
        true
    }

    /// The other vCPU of the VM with the most waiting threads, if at least `least`.
    fn busiest(&self, v: Vcpu, least: usize) -> Option<Vcpu> {
        let vm = self.vm(v);
        if vm.queued == 0 {
            return None;
        }
        let busy = (vm.first..vm.first + vm.vcpus).map(Vcpu).filter(|o| *o != v);
        // The first of the longest: `min_by_key` of the negated length.
        let longest = busy.min_by_key(|o| usize::MAX - self.v(*o).queue.len())?;
        let switching = usize::from(self.v(longest).current.is_none());
        (self.v(longest).queue.len() >= least + switching).then_some(longest)
    }

    /// Moves a waiting thread.
    fn migrate(&mut self, from: Vcpu, to: Vcpu) {
        let Some(t) = self.v_mut(from).queue.pop() else { return };
        self.vm_mut(from).queued -= 1;
        let waited_from = self.t(t).ready_at;
        let cost = self.vm(to).costs.migrate;
        self.put(to, t);
        let thread = self.t_mut(t);
        thread.ready_at = waited_from;
        thread.owed += cost;
    }

    /// Periodic balancing: gives an idle vCPU a thread that waits elsewhere.
    pub(super) fn guest_balance(&mut self, vm: Vm) {
        self.set(Timer::GuestBalance(vm), self.now + BALANCE_INTERVAL);
        let first = Vcpu(self.vms[vm.index()].first);
        let Some(idle) = self.find_idle(first, |_| true) else { return };
        let Some(busiest) = self.busiest(idle, 1) else { return };
        self.migrate(busiest, idle);
        let Some(t) = self.v(idle).queue.last().copied() else { return };
        if self.notify_vcpu(idle, t, busiest) {
            self.send(busiest, idle, super::entity::irq::RESCHED);
        }
    }

    /// Makes the vCPUs in `active` the only active ones. Waiting threads move at once, running ones when they
    /// next enter the kernel.
    pub(super) fn set_active(&mut self, vm: Vm, active: &[bool]) {
        let data = &mut self.vms[vm.index()];
        data.active.copy_from_slice(active);
        let (first, count) = (data.first, data.vcpus);
        for v in (first..first + count).map(Vcpu).filter(|v| !active[(v.0 - first) as usize]) {
            while let Some(t) = self.v_mut(v).queue.pop() {
                self.vm_mut(v).queued -= 1;
                let target = self.place(t, v, false);
                if self.enqueue(target, t, v) {
                    self.send(v, target, super::entity::irq::RESCHED);
                }
            }
            if self.v(v).current.is_some() {
                self.raise(v, super::entity::irq::TICK);
            }
        }
    }
}
