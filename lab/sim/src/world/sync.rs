//! Wait queues: their spinlocks, and wake-ups that hold the lock around the interrupt (ASPLOS'13, Figure 4).

use super::World;
use super::entity::{List, Phase, Step, WakeJob, irq};
use crate::ids::{FOREVER, Ns, Obj, Thread, Vcpu};

/// How quickly a spinning vCPU notices that it has the spinlock.
const LOCK_SPIN_LATENCY: Ns = 100;
/// How quickly a thread spinning in user mode notices a change.
const USER_SPIN_LATENCY: Ns = 60;

impl World {
    /// Kernel work for the current thread: `ns` plus what the thread owes, followed by `step`.
    pub(super) fn kernel(&mut self, v: Vcpu, step: Step, ns: Ns) {
        let owed = self.v(v).current.map_or(0, |t| std::mem::take(&mut self.t_mut(t).owed));
        self.v_mut(v).step = step;
        self.begin(v, Phase::Kernel, ns + owed);
    }

    /// Acquires the spinlock of `object`'s wait queue, works for `ns`, then continues with `step`.
    pub(super) fn with_lock(&mut self, v: Vcpu, object: Obj, step: Step, ns: Ns) {
        self.v_mut(v).lock = Some(object);
        let queue = &mut self.o_mut(object).queue;
        if queue.owner.is_none() {
            queue.owner = Some(v);
            self.kernel(v, step, ns);
        } else {
            queue.contenders.push_back(v);
            let now = self.now;
            let vcpu = self.v_mut(v);
            (vcpu.after, vcpu.lock_since) = ((step, ns), now);
            self.begin(v, Phase::LockSpin, FOREVER);
            self.watch_spin(v);
        }
    }

    /// Releases the spinlock to the next contender.
    pub(super) fn release_lock(&mut self, v: Vcpu) {
        let Some(object) = self.v_mut(v).lock.take() else { return };
        // A fair spinlock passes to the first contender, even if that is not running. A paravirtual one skips
        // contenders that are not running; the first to run takes it.
        let next = if self.vm(v).pv_lock {
            self.o(object).queue.contenders.iter().position(|c| self.running(*c))
        } else {
            Some(0)
        };
        let queue = &mut self.o_mut(object).queue;
        queue.owner = next.and_then(|next| queue.contenders.remove(next));
        if let Some(next) = queue.owner
            && self.v(next).phase == Phase::LockSpin
        {
            self.nudge(next, LOCK_SPIN_LATENCY);
        }
    }

    fn has_lock(&self, v: Vcpu) -> bool {
        self.v(v).lock.is_some_and(|o| self.o(o).queue.owner == Some(v))
    }

    /// Continues to spin, or stops if it has the lock by now.
    pub(super) fn spin_for_lock(&mut self, v: Vcpu) {
        if let Some(object) = self.v(v).lock
            && self.o(object).queue.owner.is_none()
        {
            let queue = &mut self.o_mut(object).queue;
            queue.owner = Some(v);
            queue.contenders.retain(|c| *c != v);
        }
        if self.has_lock(v) {
            self.nudge(v, LOCK_SPIN_LATENCY);
        } else {
            self.watch_spin(v);
        }
    }

    /// The spin ended: it has the lock, or the hardware detected the spinning.
    pub(super) fn lock_spin_over(&mut self, v: Vcpu) {
        if self.has_lock(v) {
            let now = self.now;
            let vcpu = self.v_mut(v);
            vcpu.counts.lock_waits += 1;
            vcpu.counts.lock_wait_ns += now - vcpu.lock_since;
            let (step, ns) = vcpu.after;
            self.kernel(v, step, ns);
        } else {
            self.pause_exit(v);
        }
    }

    /// Wakes up to `count` waiters of `object` after `extra` ns of other kernel work.
    pub(super) fn begin_wake(&mut self, v: Vcpu, object: Obj, count: u32, sync: bool, extra: Ns) {
        let ns = extra + self.vm(v).costs.futex_wake;
        self.v_mut(v).wake = WakeJob { object, left: count, sync, began: self.now, requeue: None };
        self.with_lock(v, object, Step::Wake, ns);
    }

    /// Puts the next waiter on a runqueue; if its vCPU needs an interrupt, sends that next.
    pub(super) fn wake_next(&mut self, v: Vcpu) {
        if self.vm(v).wake_queue {
            self.release_lock(v);
        }
        let job = self.v(v).wake;
        let Some(t) = self.pop_waiter(job.object) else {
            self.wakes_done(v);
            return;
        };
        self.t_mut(t).woken_at = Some(job.began);
        let moved = job.requeue.map_or(0, |mutex| self.requeue(job.object, mutex));
        let target = self.place(t, v, job.sync);
        if self.enqueue(target, t, v) {
            self.accesses_apic(v);
            let delay = moved + self.vm(v).costs.ipi_send_delay;
            self.kernel(v, Step::SendIpi(target), delay);
        } else {
            self.woke_one(v);
        }
    }

    /// Sends the interrupt; the rest of the exit follows, with the lock still held.
    pub(super) fn send_resched(&mut self, v: Vcpu, target: Vcpu) {
        self.sends_resched(v);
        self.send(v, target, irq::RESCHED);
        self.resched_sent(target);
        let rest = self.vm(v).costs.ipi_send_rest;
        self.kernel(v, Step::IpiSent, rest);
    }

    /// One waiter has been woken.
    pub(super) fn woke_one(&mut self, v: Vcpu) {
        let job = &mut self.v_mut(v).wake;
        job.left = job.left.saturating_sub(1);
        let (left, object) = (job.left, job.object);
        if left > 0 && self.o(object).queue.waiters.len > 0 {
            let ns = self.vm(v).costs.futex_wake / 2;
            self.kernel(v, Step::Wake, ns);
        } else {
            self.wakes_done(v);
        }
    }

    fn wakes_done(&mut self, v: Vcpu) {
        self.release_lock(v);
        let back = self.vm(v).costs.futex_return;
        if let Some(t) = self.v(v).current {
            self.t_mut(t).owed += back;
        }
        self.return_to_user(v);
    }

    /// What waiters of `object` wait for has changed: threads that spin in user mode check again.
    pub(super) fn changed(&mut self, object: Obj) {
        let queue = &mut self.o_mut(object).queue;
        queue.sequence = queue.sequence.wrapping_add(1);
        let mut spinners = std::mem::take(&mut queue.spinners);
        for t in spinners.drain(..) {
            let v = self.t(t).vcpu;
            if self.v(v).current == Some(t) && self.v(v).phase == Phase::UserSpin {
                self.nudge(v, USER_SPIN_LATENCY);
            }
        }
        self.o_mut(object).queue.spinners = spinners;
    }

    /// Appends a waiter to `object`.
    pub(super) fn push_waiter(&mut self, object: Obj, t: Thread) {
        self.t_mut(t).next = None;
        let list = &mut self.o_mut(object).queue.waiters;
        let before = list.tail.replace(t);
        list.len += 1;
        match before {
            Some(before) => self.t_mut(before).next = Some(t),
            None => self.o_mut(object).queue.waiters.head = Some(t),
        }
    }

    /// Removes the first waiter of `object`.
    pub(super) fn pop_waiter(&mut self, object: Obj) -> Option<Thread> {
        let first = self.o(object).queue.waiters.head?;
        let next = self.t_mut(first).next.take();
        let list = &mut self.o_mut(object).queue.waiters;
        *list = List { head: next, tail: next.and(list.tail), len: list.len - 1 };
        Some(first)
    }
}
