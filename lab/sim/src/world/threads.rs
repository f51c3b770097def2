//! Executes the threads' code, operation by operation, until one takes time.

use super::World;
use super::entity::{Kind, Phase, Step, ThreadState, irq};
use super::fail::End;
use crate::ids::{Obj, Thread, Vcpu};
use crate::program::Op;

/// No program has this many consecutive operations that take no time.
const MAX_INSTANT_OPS: u32 = 100_000;

/// Result of an operation.
pub(super) enum Flow {
    /// Continue with the next one at once.
    Next,
    /// Repeat it at once: it has advanced one step.
    Again,
    /// It takes time, or the thread has left the vCPU.
    Busy,
}

impl World {
    /// The current thread continues with its code, unless it must be switched out.
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
        for _ in 0..MAX_INSTANT_OPS {
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
        code.get(thread.pc as usize).copied().unwrap_or(Op::End)
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
            Op::Wait(o, mutex) => self.wait_signal(v, t, self.object(t, o), self.object(t, mutex)),
            Op::Signal(o) => self.release_waiters(v, t, self.object(t, o), false),
            Op::Broadcast(o) => self.release_waiters(v, t, self.object(t, o), true),
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
        let costs = self.vm(v).costs;
        if !self.v(v).queue.is_empty() {
            let queue = &self.v(v).queue;
            let last = queue.iter().map(|q| self.t(*q).entity.vruntime).max().unwrap_or(0);
            let fair = self.vm(v).fair;
            fair.give_way(&mut self.t_mut(t).entity, last);
            self.v_mut(v).need_resched = true;
        }
        self.kernel(v, Step::Return, costs.yield_round);
        Flow::Busy
    }

    /// The thread exits. If it is the last one of a program that repeats, all of them restart.
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

    /// Restarts a program; `t`, its last thread, runs on `v`.
    fn restart(&mut self, v: Vcpu, t: Thread) {
        let task = self.t(t).task;
        let data = &mut self.tasks[task.index()];
        data.alive = data.threads;
        let (first, count, first_object, objects) =
            (data.first_thread, data.threads, data.first_object, data.objects);
        for o in (first_object..first_object + objects).map(Obj) {
            match &mut self.o_mut(o).kind {
                Kind::Queue { open, producers, .. } => *open = *producers,
                Kind::Condition { signals, .. } => *signals = 0,
                _ => {}
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
                self.send(v, target, irq::RESCHED);
            }
        }
    }
}
