//! How simulations end, and which threads wait for each other in a deadlock.

use std::fmt;

use super::World;
use super::entity::{Kind, TaskData, ThreadState};
use crate::ids::{Obj, Thread, Vm};
use crate::program::BarrierKind;

/// How a simulation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Every program that does not restart has ended.
    Finished,
    /// The time limit was reached.
    TimeLimit,
    /// The event limit was reached.
    EventLimit,
    /// Every thread of a VM waits for another one.
    Deadlock(Vec<Blocked>),
    /// A thread loops without taking any time.
    NoProgress(String),
}

/// A thread in a deadlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// Program, role and number of the thread.
    pub thread: String,
    /// The object that it waits at.
    pub at: String,
    /// The thread that could end the wait.
    pub waits_for: String,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits at {} for {}", self.thread, self.at, self.waits_for)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("finished"),
            Self::TimeLimit => f.write_str("the time limit was reached"),
            Self::EventLimit => {
                f.write_str("the event limit was reached: raise `events`, or shorten the scenario")
            }
            Self::Deadlock(blocked) => {
                f.write_str("deadlock: every thread of a VM waits for another one")?;
                blocked.iter().try_for_each(|b| write!(f, "\n  {b}"))
            }
            Self::NoProgress(thread) => {
                write!(
                    f,
                    "{thread} goes round in circles without taking time: give its loop something to compute"
                )
            }
        }
    }
}

impl World {
    /// Program, role and number of a thread.
    pub(crate) fn name_of(&self, t: Thread) -> String {
        let thread = self.t(t);
        let task = &self.tasks[thread.task.index()];
        format!("{}/{}.{}", task.name, task.roles[usize::from(thread.role)], t.0 - task.first_thread)
    }

    /// The names of all threads, by number.
    pub(crate) fn thread_names(&self) -> Vec<String> {
        (0..self.threads.len()).map(|t| self.name_of(Thread::at(t))).collect()
    }

    /// The threads of a VM that sleep on objects or spin for them, and what they wait for.
    pub(super) fn blocked(&self, vm: Vm) -> Vec<Blocked> {
        let all = (0..self.threads.len()).map(Thread::at);
        let of_vm = all.filter(|t| self.tasks[self.t(*t).task.index()].vm == vm);
        of_vm
            .filter_map(|t| match self.t(t).state {
                ThreadState::Blocked(object) => Some(self.why_blocked(t, object)),
                ThreadState::Ready => Some(self.why_blocked(t, self.spun_for(t)?)),
                _ => None,
            })
            .collect()
    }

    /// The object that `t` spins for.
    fn spun_for(&self, t: Thread) -> Option<Obj> {
        let task = &self.tasks[self.t(t).task.index()];
        let mut objects = (task.first_object..task.first_object + task.objects).map(Obj);
        objects.find(|o| self.o(*o).queue.spinners.contains(&t))
    }

    fn why_blocked(&self, t: Thread, object: Obj) -> Blocked {
        let task = &self.tasks[self.t(t).task.index()];
        let number = object.0 - task.first_object;
        let holder_of = |holder: Option<Thread>| {
            holder.map_or_else(|| "nobody: it is free".to_owned(), |h| self.name_of(h))
        };
        if let Some(barrier) = self.barrier_of(object) {
            return self.why_blocked(t, barrier);
        }
        // A queue is followed by its mutex and its conditions.
        let (what, named, waits_for) = match self.o(object).kind {
            Kind::Mutex { holder, .. } => match self.queue_of(task, number) {
                Some(queue) => ("queue", queue, holder_of(holder)),
                None => ("mutex", number, holder_of(holder)),
            },
            Kind::Barrier { parties, arrived, .. } => {
                ("barrier", number, format!("{} more threads to arrive", parties - arrived))
            }
            Kind::Condition { .. } => match self.queue_of(task, number) {
                Some(queue) => ("queue", queue, "an item or room".to_owned()),
                None => ("condition", number, "a signal".to_owned()),
            },
            Kind::Queue { .. } => ("queue", number, "an item or room".to_owned()),
            Kind::Channel { .. } => ("channel", number, "a post".to_owned()),
        };
        let name = task.names.iter().find(|(o, _)| u32::from(*o) == named).map(|(_, name)| name);
        let at = name.map_or_else(|| format!("{what} {named}"), |name| format!("{what} `{name}`"));
        Blocked { thread: self.name_of(t), at, waits_for }
    }

    /// The barrier that the object is the mutex or condition of.
    fn barrier_of(&self, object: Obj) -> Option<Obj> {
        let made_of = |barrier: &Obj| {
            matches!(self.o(*barrier).kind, Kind::Barrier { kind: BarrierKind::Condition(_), .. })
        };
        [1, 2].into_iter().filter_map(|back| object.0.checked_sub(back)).map(Obj).find(made_of)
    }

    /// The queue that the object with this number in the task is the mutex or condition of.
    fn queue_of(&self, task: &TaskData, number: u32) -> Option<u32> {
        let is_queue = |n: &u32| matches!(self.o(Obj(task.first_object + n)).kind, Kind::Queue { .. });
        [1, 2, 3].into_iter().filter_map(|back| number.checked_sub(back)).find(is_queue)
    }

    /// No event is pending.
    pub(super) fn nothing_to_come(&mut self) {
        let blocked = (0..self.vms.len()).flat_map(|vm| self.blocked(Vm::at(vm))).collect();
        self.end = Some(End::Deadlock(blocked));
    }
}
