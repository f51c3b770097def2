//! Threads: carrying out their code, one operation after the other, until one takes time.

use super::World;
use super::entity::{Kind, Phase, Step, ThreadState, irq};
use super::fail::End;
use crate::ids::{FOREVER, Ns, Obj, Thread, Vcpu};
use crate::program::{BarrierKind, ChannelKind, Op};

/// More operations in a row than any program has without taking time.
const ENDLESS: u32 = 100_000;

/// What an operation came to.
enum Flow {
    /// The next one follows, at once.
    Next,
    /// The same one again, at once: it went a step further.
    Again,
    /// It takes time, or the thread has left the vCPU.
    Busy,
}

impl World {
    /// The current thread goes on with its code, if it may.
    pub(super) fn return_to_user(&mut self, v: Vcpu) {
        if self.v(v).need_resched {
            if self.must_switch(v) {
                self.preempt_current(v);
                return;
            }
            self.v_mut(v).need_resched = false;
        }
        let Some(t) = self.v(v).current else { return };
        let left = std::mem::take(&mut self.t_mut(t).left);
        if left > 0 {
            let owed = std::mem::take(&mut self.t_mut(t).owed);
            self.begin(v, Phase::User, left + owed);
            return;
        }
        for _ in 0..ENDLESS {
            match self.execute(v, t) {
                Flow::Next => {
                    let thread = self.t_mut(t);
                    thread.pc += 1;
                    thread.step = 0;
                }
                Flow::Again => {}
                Flow::Busy => return,
            }
        }
        self.end = Some(End::NoProgress(self.name_of(t)));
    }

    /// The computation of the current operation is done.
    pub(super) fn computed(&mut self, v: Vcpu) {
        if let Some(t) = self.v(v).current {
            let thread = self.t_mut(t);
            thread.pc += 1;
            thread.step = 0;
        }
        self.return_to_user(v);
    }

    fn code(&self, t: Thread) -> Op {
        let thread = self.t(t);
        let code = &self.tasks[thread.task.index()].codes[usize::from(thread.role)];
        code.get(usize::from(thread.pc)).copied().unwrap_or(Op::End)
    }

    fn object(&self, t: Thread, number: u16) -> Obj {
        Obj(self.tasks[self.t(t).task.index()].first_object + u32::from(number))
    }

    fn execute(&mut self, v: Vcpu, t: Thread) -> Flow {
        match self.code(t) {
            Op::Compute(dist) => {
                let thread = self.t_mut(t);
                let ns = dist.sample(&mut thread.generator) + std::mem::take(&mut thread.owed);
                self.begin(v, Phase::User, ns);
                Flow::Busy
            }
            Op::Lock(o) => self.lock(v, t, self.object(t, o)),
            Op::Unlock(o) => match self.t(t).step {
                0 => self.unlock(v, t, self.object(t, o), 1),
                _ => Flow::Next,
            },
            Op::Barrier(o) => self.barrier(v, t, self.object(t, o)),
            Op::Put(o) => self.put_item(v, t, self.object(t, o)),
            Op::Take(o, closed) => self.take_item(v, t, self.object(t, o), closed),
            Op::Close(o) => self.close(v, t, self.object(t, o)),
            Op::Send(o) => self.post(v, t, self.object(t, o)),
            Op::Receive(o) => self.receive(v, t, self.object(t, o)),
            Op::Sleep(dist) | Op::Io(dist) => self.sleep(v, t, dist),
            Op::Shootdown => match self.t(t).step {
                0 => {
                    self.begin_flush(v);
                    Flow::Busy
                }
                _ => Flow::Next,
            },
            Op::Yield => self.yield_now(v, t),
            Op::Done(n) => {
                self.task_mut(t).totals.operations += u64::from(n);
                Flow::Next
            }
            Op::Moved(n) => {
                self.task_mut(t).totals.moved += u64::from(n);
                Flow::Next
            }
            Op::Repeat(times) => {
                let thread = self.t_mut(t);
                thread.loops[usize::from(thread.depth)] = (thread.pc, times);
                thread.depth += 1;
                Flow::Next
            }
            Op::Again => {
                let thread = self.t_mut(t);
                let (start, times) = &mut thread.loops[usize::from(thread.depth) - 1];
                if *times == 1 {
                    thread.depth -= 1;
                } else {
                    *times = times.saturating_sub(1);
                    thread.pc = *start;
                }
                Flow::Next
            }
            Op::End => self.thread_ends(v, t),
        }
    }

    fn owe(&mut self, t: Thread, ns: Ns) {
        self.t_mut(t).owed += ns;
    }

    fn goto(&mut self, t: Thread, step: u8) -> Flow {
        self.t_mut(t).step = step;
        Flow::Again
    }

    /// Spins in user mode until `object` changes, at most for what the thread may still spin; then waits in the kernel.
    fn wait_for(&mut self, v: Vcpu, t: Thread, object: Obj, seen: u32, spin: Ns) -> Flow {
        let thread = self.t_mut(t);
        if !thread.spun {
            (thread.spun, thread.spin_left) = (true, spin);
        }
        thread.seen = seen;
        if thread.spin_left > 0 {
            let ns = thread.spin_left;
            let spinners = &mut self.o_mut(object).queue.spinners;
            if !spinners.contains(&t) {
                spinners.push(t);
            }
            self.begin(v, Phase::UserSpin, ns);
        } else {
            // Who is woken in vain spins again before it sleeps again.
            thread.spun = false;
            self.begin_wait(v, t, object, seen);
        }
        Flow::Busy
    }

    /// Whether the mutex is the thread's now; else it waits.
    fn acquire(&mut self, v: Vcpu, t: Thread, mutex: Obj) -> Option<Flow> {
        let user_lock = self.vm(v).costs.user_lock;
        let object = self.o_mut(mutex);
        let Kind::Mutex { holder, spin, .. } = &mut object.kind else { return None };
        if holder.is_none() || *holder == Some(t) {
            *holder = Some(t);
            let thread = self.t_mut(t);
            thread.spun = false;
            thread.owed += user_lock;
            return None;
        }
        let (spin, seen) = (*spin, object.queue.sequence);
        Some(self.wait_for(v, t, mutex, seen, spin))
    }

    fn lock(&mut self, v: Vcpu, t: Thread, mutex: Obj) -> Flow {
        self.acquire(v, t, mutex).unwrap_or(Flow::Next)
    }

    /// Releases the mutex, wakes a waiter if there is one, and goes on at `step`.
    fn unlock(&mut self, v: Vcpu, t: Thread, mutex: Obj, step: u8) -> Flow {
        let user_lock = self.vm(v).costs.user_lock;
        self.owe(t, user_lock);
        self.t_mut(t).step = step;
        let object = self.o_mut(mutex);
        let first = object.queue.waiters.head;
        if let Kind::Mutex { holder, handoff, .. } = &mut object.kind {
            *holder = first.filter(|_| *handoff);
        }
        self.changed(mutex);
        if self.o(mutex).queue.waiters.len > 0 {
            self.begin_wake(v, mutex, 1, false, 0);
            Flow::Busy
        } else {
            Flow::Again
        }
    }

    fn barrier(&mut self, v: Vcpu, t: Thread, object: Obj) -> Flow {
        let Kind::Barrier { parties, kind, .. } = self.o(object).kind else { return Flow::Next };
        let spin = match kind {
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
            self.t_mut(t).spun = false;
            return Flow::Next;
        }
        let seen = self.t(t).seen;
        self.wait_for(v, t, object, seen, spin)
    }

    /// One more thread is at the barrier; the last one makes it ready for the next time. How many are there.
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

    fn put_item(&mut self, v: Vcpu, t: Thread, queue: Obj) -> Flow {
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

    fn take_item(&mut self, v: Vcpu, t: Thread, queue: Obj, closed: u16) -> Flow {
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
                thread.pc = closed;
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

    fn close(&mut self, v: Vcpu, t: Thread, queue: Obj) -> Flow {
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

    fn post(&mut self, v: Vcpu, t: Thread, channel: Obj) -> Flow {
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

    fn receive(&mut self, v: Vcpu, t: Thread, channel: Obj) -> Flow {
        let object = self.o_mut(channel);
        let Kind::Channel { posts, kind } = &mut object.kind else { return Flow::Next };
        if *posts > 0 {
            *posts -= 1;
            let socket = *kind == ChannelKind::Socket;
            self.t_mut(t).spun = false;
            let ns = if socket { self.vm(v).costs.socket } else { 0 };
            self.owe(t, ns);
            return Flow::Next;
        }
        let spin = if *kind == ChannelKind::Spin { FOREVER } else { 0 };
        let seen = object.queue.sequence;
        self.wait_for(v, t, channel, seen, spin)
    }

    fn sleep(&mut self, v: Vcpu, t: Thread, dist: crate::random::Dist) -> Flow {
        if self.t(t).step > 0 {
            return Flow::Next;
        }
        let thread = self.t_mut(t);
        thread.step = 1;
        let ns = dist.sample(&mut thread.generator);
        let enter = self.vm(v).costs.syscall;
        self.kernel(v, Step::SleepFor(ns), enter);
        Flow::Busy
    }

    fn yield_now(&mut self, v: Vcpu, t: Thread) -> Flow {
        if self.t(t).step > 0 {
            return Flow::Next;
        }
        self.t_mut(t).step = 1;
        let ns = self.vm(v).costs.syscall;
        if !self.v(v).queue.is_empty() {
            // Behind the others: the kernel's yield skips the thread once.
            let queue = &self.v(v).queue;
            let last = queue.iter().map(|q| self.t(*q).entity.vruntime).max().unwrap_or(0);
            let entity = &mut self.t_mut(t).entity;
            entity.vruntime = entity.vruntime.max(last + 1);
            self.v_mut(v).need_resched = true;
        }
        self.kernel(v, Step::Return, ns);
        Flow::Busy
    }

    /// The thread is at its end. The last one of a program that repeats starts all of them again.
    fn thread_ends(&mut self, v: Vcpu, t: Thread) -> Flow {
        let task = self.t(t).task;
        let data = &mut self.tasks[task.index()];
        data.alive -= 1;
        if data.alive == 0 {
            data.totals.runs += 1;
            if data.looping {
                self.restart(v, t);
                return Flow::Again;
            }
            data.totals.finished = Some(self.now);
            self.unfinished -= 1;
            if self.unfinished == 0 {
                self.end = Some(End::Finished);
                return Flow::Busy;
            }
        }
        let vm = self.v(v).vm;
        self.vms[vm.index()].alive -= 1;
        self.leave(v, t, ThreadState::Ended);
        Flow::Busy
    }

    /// Starts a program again; `t`, its last thread, runs on `v`.
    fn restart(&mut self, v: Vcpu, t: Thread) {
        let task = self.t(t).task;
        let data = &mut self.tasks[task.index()];
        data.alive = data.threads;
        let (first, count, first_object, objects) =
            (data.first_thread, data.threads, data.first_object, data.objects);
        for o in (first_object..first_object + objects).map(Obj) {
            if let Kind::Queue { open, producers, .. } = &mut self.o_mut(o).kind {
                *open = *producers;
            }
        }
        for other in (first..first + count).map(Thread) {
            let thread = self.t_mut(other);
            (thread.pc, thread.step, thread.depth) = (0, 0, 0);
            if other == t {
                continue;
            }
            let vm = self.v(v).vm;
            self.vms[vm.index()].alive += 1;
            let target = self.place(other, v, false);
            if self.enqueue(target, other, v) {
                self.send(target, irq::RESCHED);
            }
        }
    }
}
