//! Threads that go to sleep, and the completion of kernel work.

use super::Timer;
use super::World;
use super::entity::{Step, ThreadState};
use super::fail::End;
use crate::ids::{Ns, Obj, Thread, Vcpu};

impl World {
    /// Kernel work is done.
    pub(super) fn kernel_done(&mut self, v: Vcpu, step: Step) {
        match step {
            Step::Return => self.return_to_user(v),
            Step::Wait => self.sleep_on_object(v),
            Step::Wake => self.wake_next(v),
            Step::SendIpi(target) => self.send_resched(v, target),
            Step::IpiSent => self.woke_one(v),
            Step::SleepFor(ns) => self.sleep_for(v, ns),
            Step::SendFlush => self.send_flushes(v),
        }
    }

    /// Puts the current thread to sleep on `object`, unless its sequence has changed from `seen`.
    pub(super) fn begin_wait(&mut self, v: Vcpu, t: Thread, object: Obj, seen: u32) {
        self.t_mut(t).seen = seen;
        let ns = self.vm(v).costs.futex_wait;
        self.with_lock(v, object, Step::Wait, ns);
    }

    fn sleep_on_object(&mut self, v: Vcpu) {
        let vcpu = self.v(v);
        let (Some(t), Some(object)) = (vcpu.current, vcpu.lock) else { return };
        let back = self.vm(v).costs.futex_return;
        self.t_mut(t).owed += back;
        if self.o(object).queue.sequence == self.t(t).seen {
            self.push_waiter(object, t);
            self.release_lock(v);
            self.leave(v, t, ThreadState::Blocked(object));
        } else {
            // What it was about to wait for has already happened.
            self.release_lock(v);
            self.return_to_user(v);
        }
    }

    fn sleep_for(&mut self, v: Vcpu, ns: Ns) {
        let Some(t) = self.v(v).current else { return };
        let vm = self.v(v).vm;
        self.vms[vm.index()].timed += 1;
        self.set(Timer::Thread(t), self.now + ns);
        self.leave(v, t, ThreadState::Timed);
    }

    /// The current thread leaves its vCPU; the next one is scheduled.
    pub(super) fn leave(&mut self, v: Vcpu, t: Thread, state: ThreadState) {
        self.settle(v);
        self.t_mut(t).state = state;
        self.v_mut(v).current = None;
        self.task_mut(t).totals.switches += 1;
        let vm = self.vm_mut(v);
        vm.ready -= 1;
        if vm.ready == 0 && vm.timed == 0 && vm.alive > 0 {
            let vm = self.v(v).vm;
            self.end = Some(End::Deadlock(self.blocked(vm)));
            return;
        }
        self.guest_schedule(v);
    }
}
