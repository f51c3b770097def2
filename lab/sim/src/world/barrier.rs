//! Barriers composed of a mutex and a condition variable. When the last arrival releases the others, only one
//! is woken; the rest move to the mutex's queue (`futex_requeue`), and each wakes the next one as it releases
//! the mutex. ASPLOS'13 §3.1.1 finds most preempted lock holders in just these two system calls.

use super::World;
use super::entity::{Kind, Step, ThreadState, WakeJob};
use super::threads::Flow;
use crate::ids::{FOREVER, Ns, Obj, Thread, Vcpu};

/// Cost of moving a waiter from one wait queue to another.
const REQUEUE_COST: Ns = 100;

/// Steps of a thread at the barrier. It waits twice: on arrival until all threads of the previous phase have
/// left, and then until all have arrived.
mod step {
    pub(super) const LOCK: u8 = 0;
    pub(super) const TO_COME: u8 = 1;
    pub(super) const COME: u8 = 7;
    pub(super) const TO_LEAVE: u8 = 8;
    pub(super) const LEAVE: u8 = 14;
    pub(super) const UNLOCK: u8 = 15;
    pub(super) const DONE: u8 = 16;

    // Steps of each wait, relative to its first one.
    pub(super) const CHECK: u8 = 0;
    pub(super) const SPIN: u8 = 1;
    pub(super) const RELOCK: u8 = 2;
    pub(super) const RECHECK: u8 = 3;
    pub(super) const SLEEP: u8 = 4;
    pub(super) const WOKEN: u8 = 5;
}

/// The objects of a barrier.
#[derive(Clone, Copy)]
struct Parts {
    barrier: Obj,
    mutex: Obj,
    condition: Obj,
}

impl World {
    /// Waits at a barrier composed of a mutex and a condition.
    pub(super) fn meet(&mut self, v: Vcpu, t: Thread, barrier: Obj, parties: u32, spin: Ns) -> Flow {
        let parts = Parts { barrier, mutex: Obj(barrier.0 + 1), condition: Obj(barrier.0 + 2) };
        match self.t(t).step {
            step::LOCK => self.acquire(v, t, parts.mutex).unwrap_or_else(|| self.goto(t, step::TO_COME)),
            step::COME => {
                let Kind::Barrier { arrived, leaving, .. } = &mut self.o_mut(barrier).kind else {
                    return Flow::Next;
                };
                *arrived += 1;
                if *arrived < parties {
                    return self.goto(t, step::TO_LEAVE);
                }
                *leaving = true;
                self.release_all(v, t, parts, step::LEAVE)
            }
            step::LEAVE => {
                let Kind::Barrier { arrived, leaving, .. } = &mut self.o_mut(barrier).kind else {
                    return Flow::Next;
                };
                *arrived -= 1;
                if *arrived > 0 {
                    return self.goto(t, step::UNLOCK);
                }
                *leaving = false;
                self.release_all(v, t, parts, step::UNLOCK)
            }
            step::UNLOCK => self.unlock(v, t, parts.mutex, step::DONE),
            step::DONE => Flow::Next,
            at if at < step::COME => self.await_phase(v, t, parts, spin, step::TO_COME, step::COME),
            _ => self.await_phase(v, t, parts, spin, step::TO_LEAVE, step::LEAVE),
        }
    }

    /// Waits, with the mutex held before and after, until the previous phase has been left or all have
    /// arrived; then continues at `next`.
    fn await_phase(&mut self, v: Vcpu, t: Thread, parts: Parts, spin: Ns, first: u8, next: u8) -> Flow {
        let Kind::Barrier { leaving, .. } = self.o(parts.barrier).kind else { return Flow::Next };
        let over = leaving == (first == step::TO_LEAVE);
        let now = self.t(t).step - first;
        if !over {
            self.count_wait(v, now, first);
        }
        match now {
            step::CHECK | step::RECHECK if over => self.goto(t, next),
            step::CHECK if spin > 0 => {
                self.t_mut(t).spin_left = spin;
                self.unlock(v, t, parts.mutex, first + step::SPIN)
            }
            step::CHECK | step::RECHECK => {
                self.t_mut(t).condition = self.o(parts.condition).queue.sequence;
                self.unlock(v, t, parts.mutex, first + step::SLEEP)
            }
            step::SPIN if over || self.t(t).spin_left == 0 => self.goto(t, first + step::RELOCK),
            step::SPIN => {
                self.spin_for(v, t, parts.barrier);
                Flow::Busy
            }
            // PARSEC's barrier retries endlessly here.
            step::RELOCK => self
                .acquire_with(v, t, parts.mutex, FOREVER)
                .unwrap_or_else(|| self.goto(t, first + step::RECHECK)),
            step::SLEEP => {
                let seen = self.t(t).condition;
                self.t_mut(t).step = first + step::WOKEN;
                self.begin_wait(v, t, parts.condition, seen);
                Flow::Busy
            }
            _ => {
                // Others might be in the mutex's queue, too (glibc: `__pthread_mutex_cond_lock`).
                self.t_mut(t).slept = true;
                self.acquire_with(v, t, parts.mutex, 0).unwrap_or_else(|| self.goto(t, first + step::RECHECK))
            }
        }
    }

    /// Counts a wait at its first check, and that it blocks.
    fn count_wait(&mut self, v: Vcpu, now: u8, first: u8) {
        let counts = &mut self.v_mut(v).counts;
        match now {
            step::CHECK if first == step::TO_COME => counts.departure_waits += 1,
            step::CHECK => counts.arrival_waits += 1,
            step::SLEEP => counts.blocked_waits += 1,
            _ => {}
        }
    }

    /// Ends a phase: spinners notice. Of the sleepers, one is woken and the others wait for the mutex;
    /// without requeueing, all are woken.
    fn release_all(&mut self, v: Vcpu, t: Thread, parts: Parts, next: u8) -> Flow {
        self.t_mut(t).step = next;
        self.changed(parts.barrier);
        self.changed(parts.condition);
        let waiters = self.o(parts.condition).queue.waiters.len;
        if waiters == 0 {
            return Flow::Again;
        }
        if !self.vm(v).requeue {
            self.begin_wake(v, parts.condition, waiters, false, 0);
            return Flow::Busy;
        }
        let ns = self.vm(v).costs.futex_wake;
        let (object, requeue) = (parts.condition, Some(parts.mutex));
        self.v_mut(v).wake = WakeJob { object, left: 1, sync: false, began: self.now, requeue };
        // The kernel takes both queues' spinlocks. With the mutex held, nobody contends for the condition's.
        self.with_lock(v, parts.mutex, Step::Wake, ns);
        Flow::Busy
    }

    /// Moves the waiters of `condition` to `mutex`. Returns the time that takes.
    pub(super) fn requeue(&mut self, condition: Obj, mutex: Obj) -> Ns {
        let mut moved = 0;
        while let Some(t) = self.pop_waiter(condition) {
            self.t_mut(t).state = ThreadState::Blocked(mutex);
            self.push_waiter(mutex, t);
            moved += 1;
        }
        if moved > 0
            && let Kind::Mutex { contended, .. } = &mut self.o_mut(mutex).kind
        {
            *contended = true;
        }
        moved * REQUEUE_COST
    }
}
