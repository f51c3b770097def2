//! Operations on objects: mutexes, barriers, queues, channels.

use super::World;
use super::entity::{Kind, Phase, Step};
use super::threads::Flow;
use crate::ids::{FOREVER, Ns, Obj, Thread, Vcpu};
use crate::program::{BarrierKind, ChannelKind};

impl World {
    pub(super) fn goto(&mut self, t: Thread, step: u8) -> Flow {
        self.t_mut(t).step = step;
        Flow::Again
    }

    fn add_owed(&mut self, t: Thread, ns: Ns) {
        self.t_mut(t).owed += ns;
    }

    /// Spins in user mode until `object` changes, for at most its remaining spin time; then blocks.
    fn wait_for(&mut self, v: Vcpu, t: Thread, object: Obj, seen: u32, spin: Ns) -> Flow {
        let thread = self.t_mut(t);
        if !thread.spun {
            (thread.spun, thread.spin_left) = (true, spin);
        }
        thread.seen = seen;
        if thread.spin_left > 0 {
            self.spin_for(v, t, object);
        } else {
            // A thread that is woken in vain spins again before it sleeps again.
            (thread.spun, thread.slept) = (false, true);
            if let Kind::Mutex { contended, .. } = &mut self.o_mut(object).kind {
                *contended = true;
            }
            self.begin_wait(v, t, object, seen);
        }
        Flow::Busy
    }

    /// Spins in user mode until `object` changes, for at most the thread's remaining spin time.
    pub(super) fn spin_for(&mut self, v: Vcpu, t: Thread, object: Obj) {
        let ns = self.t(t).spin_left;
        let spinners = &mut self.o_mut(object).queue.spinners;
        if !spinners.contains(&t) {
            spinners.push(t);
        }
        self.begin(v, Phase::UserSpin, ns);
    }

    /// Acquires the mutex; returns `None` if the thread has it now, else it waits.
    pub(super) fn acquire(&mut self, v: Vcpu, t: Thread, mutex: Obj) -> Option<Flow> {
        let Kind::Mutex { spin, .. } = self.o(mutex).kind else { return None };
        self.acquire_with(v, t, mutex, spin)
    }

    /// The same, with this much spinning before it sleeps.
    pub(super) fn acquire_with(&mut self, v: Vcpu, t: Thread, mutex: Obj, spin: Ns) -> Option<Flow> {
        let user_lock = self.vm(v).costs.user_lock;
        let slept = std::mem::take(&mut self.t_mut(t).slept);
        let object = self.o_mut(mutex);
        let Kind::Mutex { holder, contended, .. } = &mut object.kind else { return None };
        if holder.is_none() || *holder == Some(t) {
            *holder = Some(t);
            // A thread that has slept cannot know whether others still do.
            *contended |= slept;
            let thread = self.t_mut(t);
            thread.spun = false;
            thread.owed += user_lock;
            return None;
        }
        let seen = object.queue.sequence;
        Some(self.wait_for(v, t, mutex, seen, spin))
    }

    pub(super) fn lock(&mut self, v: Vcpu, t: Thread, mutex: Obj) -> Flow {
        self.acquire(v, t, mutex).unwrap_or(Flow::Next)
    }

    /// Releases the mutex, wakes a waiter if there is one, and continues at `step`.
    pub(super) fn unlock(&mut self, v: Vcpu, t: Thread, mutex: Obj, step: u8) -> Flow {
        let costs = self.vm(v).costs;
        self.add_owed(t, costs.user_lock);
        self.t_mut(t).step = step;
        let object = self.o_mut(mutex);
        let first = object.queue.waiters.head;
        let mut called = false;
        if let Kind::Mutex { holder, handoff, contended, .. } = &mut object.kind {
            *holder = first.filter(|_| *handoff);
            called = std::mem::take(contended);
        }
        self.changed(mutex);
        if first.is_some() {
            self.begin_wake(v, mutex, 1, false, 0);
            Flow::Busy
        } else if called {
            self.kernel(v, Step::Return, costs.syscall);
            Flow::Busy
        } else {
            Flow::Again
        }
    }

    pub(super) fn barrier(&mut self, v: Vcpu, t: Thread, object: Obj) -> Flow {
        let Kind::Barrier { parties, kind, .. } = self.o(object).kind else { return Flow::Next };
        let spin = match kind {
            BarrierKind::Condition(spin) => return self.meet(v, t, object, parties, spin),
            BarrierKind::Block => 0,
            BarrierKind::Spin => FOREVER,
            BarrierKind::SpinThenBlock(ns) => ns,
        };
        if self.t(t).step == 0 {
            if self.arrive(object) == parties {
                self.changed(object);
                self.t_mut(t).step = 2;
                let waiters = self.o(object).queue.waiters.len;
                if waiters == 0 {
                    return Flow::Again;
                }
                self.begin_wake(v, object, waiters, false, 0);
                return Flow::Busy;
            }
            let seen = self.o(object).queue.sequence;
            let thread = self.t_mut(t);
            (thread.step, thread.seen, thread.spun) = (1, seen, false);
        }
        if self.t(t).step == 2 || self.o(object).queue.sequence != self.t(t).seen {
            let thread = self.t_mut(t);
            (thread.spun, thread.slept) = (false, false);
            return Flow::Next;
        }
        let seen = self.t(t).seen;
        self.wait_for(v, t, object, seen, spin)
    }

    /// Counts an arrival at the barrier; the last one resets it. Returns the number of arrivals.
    fn arrive(&mut self, object: Obj) -> u32 {
        let Kind::Barrier { parties, arrived, .. } = &mut self.o_mut(object).kind else { return 0 };
        *arrived += 1;
        let there = *arrived;
        *arrived %= *parties;
        there
    }

    /// The parts of a queue: its mutex and the conditions "not empty" and "not full".
    fn parts(queue: Obj) -> (Obj, Obj, Obj) {
        (Obj(queue.0 + 1), Obj(queue.0 + 2), Obj(queue.0 + 3))
    }

    pub(super) fn put_item(&mut self, v: Vcpu, t: Thread, queue: Obj) -> Flow {
        let (mutex, not_empty, not_full) = Self::parts(queue);
        match self.t(t).step {
            0 => self.acquire(v, t, mutex).unwrap_or_else(|| self.goto(t, 1)),
            1 => {
                let Kind::Queue { len, capacity, .. } = &mut self.o_mut(queue).kind else {
                    return Flow::Next;
                };
                if *len < *capacity {
                    *len += 1;
                    return self.unlock(v, t, mutex, 3);
                }
                self.t_mut(t).condition = self.o(not_full).queue.sequence;
                self.unlock(v, t, mutex, 2)
            }
            2 => self.wait_condition(v, t, not_full),
            3 => self.signal(v, t, queue, not_empty),
            _ => Flow::Next,
        }
    }

    pub(super) fn take_item(&mut self, v: Vcpu, t: Thread, queue: Obj, closed: u16) -> Flow {
        let (mutex, not_empty, not_full) = Self::parts(queue);
        match self.t(t).step {
            0 => self.acquire(v, t, mutex).unwrap_or_else(|| self.goto(t, 1)),
            1 => {
                let Kind::Queue { len, open, .. } = &mut self.o_mut(queue).kind else { return Flow::Next };
                if *len > 0 {
                    *len -= 1;
                    self.unlock(v, t, mutex, 3)
                } else if *open == 0 {
                    self.unlock(v, t, mutex, 5)
                } else {
                    self.t_mut(t).condition = self.o(not_empty).queue.sequence;
                    self.unlock(v, t, mutex, 2)
                }
            }
            2 => self.wait_condition(v, t, not_empty),
            3 => self.signal(v, t, queue, not_full),
            5 => {
                let thread = self.t_mut(t);
                thread.pc = u32::from(closed);
                thread.depth = thread.depth.saturating_sub(1);
                self.goto(t, 0)
            }
            _ => Flow::Next,
        }
    }

    /// Sleeps on a condition, then starts over with the mutex.
    fn wait_condition(&mut self, v: Vcpu, t: Thread, condition: Obj) -> Flow {
        self.t_mut(t).step = 0;
        let seen = self.t(t).condition;
        self.begin_wait(v, t, condition, seen);
        Flow::Busy
    }

    /// Waits on a condition of the program, with its mutex held before and after.
    pub(super) fn wait_signal(&mut self, v: Vcpu, t: Thread, condition: Obj, mutex: Obj) -> Flow {
        match self.t(t).step {
            0 | 3 => {
                let again = self.t(t).step == 3;
                let object = self.o_mut(condition);
                let sequence = object.queue.sequence;
                let Kind::Condition { signals, broadcasts } = &mut object.kind else { return Flow::Next };
                if *signals > 0 {
                    *signals -= 1;
                    return Flow::Next;
                }
                let seen = *broadcasts;
                let thread = self.t_mut(t);
                if again && thread.broadcasts != seen {
                    return Flow::Next;
                }
                (thread.condition, thread.broadcasts) = (sequence, seen);
                self.unlock(v, t, mutex, 1)
            }
            1 => {
                self.t_mut(t).step = 2;
                let seen = self.t(t).condition;
                self.begin_wait(v, t, condition, seen);
                Flow::Busy
            }
            _ => self.acquire(v, t, mutex).unwrap_or_else(|| self.goto(t, 3)),
        }
    }

    /// Signals a condition of the program to one waiter or to `all`.
    pub(super) fn release_waiters(&mut self, v: Vcpu, t: Thread, condition: Obj, all: bool) -> Flow {
        if self.t(t).step > 0 {
            return Flow::Next;
        }
        self.t_mut(t).step = 1;
        let object = self.o_mut(condition);
        let waiters = if all { object.queue.waiters.len } else { object.queue.waiters.len.min(1) };
        if let Kind::Condition { signals, broadcasts } = &mut object.kind {
            let counter = if all { broadcasts } else { signals };
            *counter = counter.wrapping_add(1);
        }
        self.changed(condition);
        if waiters == 0 {
            return Flow::Again;
        }
        self.begin_wake(v, condition, waiters, false, 0);
        Flow::Busy
    }

    fn signal(&mut self, v: Vcpu, t: Thread, queue: Obj, condition: Obj) -> Flow {
        self.t_mut(t).step = 4;
        self.changed(condition);
        if self.o(condition).queue.waiters.len > 0 {
            self.begin_wake(v, condition, 1, false, 0);
            return Flow::Busy;
        }
        if matches!(self.o(queue).kind, Kind::Queue { always_signals: true, .. }) {
            let ns = self.vm(v).costs.syscall;
            self.kernel(v, Step::Return, ns);
            return Flow::Busy;
        }
        Flow::Again
    }

    pub(super) fn close(&mut self, v: Vcpu, t: Thread, queue: Obj) -> Flow {
        let (_, not_empty, _) = Self::parts(queue);
        if self.t(t).step > 0 {
            return Flow::Next;
        }
        self.t_mut(t).step = 1;
        let Kind::Queue { open, .. } = &mut self.o_mut(queue).kind else { return Flow::Next };
        *open = open.saturating_sub(1);
        if *open > 0 {
            return Flow::Next;
        }
        self.changed(not_empty);
        match self.o(not_empty).queue.waiters.len {
            0 => Flow::Next,
            waiters => {
                self.begin_wake(v, not_empty, waiters, false, 0);
                Flow::Busy
            }
        }
    }

    pub(super) fn post(&mut self, v: Vcpu, t: Thread, channel: Obj) -> Flow {
        let Kind::Channel { kind, .. } = self.o(channel).kind else { return Flow::Next };
        match self.t(t).step {
            0 if kind == ChannelKind::Socket => {
                let ns = self.vm(v).costs.socket;
                self.t_mut(t).step = 1;
                self.kernel(v, Step::Return, ns);
                Flow::Busy
            }
            0 | 1 => {
                if let Kind::Channel { posts, .. } = &mut self.o_mut(channel).kind {
                    *posts += 1;
                }
                self.t_mut(t).step = 2;
                self.changed(channel);
                if self.o(channel).queue.waiters.len == 0 {
                    return Flow::Again;
                }
                self.begin_wake(v, channel, 1, kind == ChannelKind::Socket, 0);
                Flow::Busy
            }
            _ => Flow::Next,
        }
    }

    pub(super) fn receive(&mut self, v: Vcpu, t: Thread, channel: Obj) -> Flow {
        let object = self.o_mut(channel);
        let Kind::Channel { posts, kind } = &mut object.kind else { return Flow::Next };
        if *posts > 0 {
            *posts -= 1;
            let socket = *kind == ChannelKind::Socket;
            let thread = self.t_mut(t);
            (thread.spun, thread.slept) = (false, false);
            let ns = if socket { self.vm(v).costs.socket } else { 0 };
            self.add_owed(t, ns);
            return Flow::Next;
        }
        let spin = if *kind == ChannelKind::Spin { FOREVER } else { 0 };
        let seen = object.queue.sequence;
        self.wait_for(v, t, channel, seen, spin)
    }
}
