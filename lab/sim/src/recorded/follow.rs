//! Turns events into the segments of each thread.

use std::collections::BTreeMap;

use gleaner_policy::CpuId;
use gleaner_proto::trace_file::{Event, EventKind, PrevState, Task};

use super::{Kernel, Replayed};
use crate::ids::Ns;

/// A step of a thread. A pair is an index into the list of wakers and wakees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Segment {
    Compute(Ns),
    /// Ends a wait of the pair's wakee.
    Post(u32),
    /// Waits for the pair's waker.
    Await(u32),
    Sleep(Ns),
    Io(Ns),
}

/// State of all threads while reading the trace.
#[derive(Debug, Default)]
pub(super) struct Threads {
    known: Vec<Thread>,
    pairs: BTreeMap<(u32, u32), u32>,
    /// What occupies each vCPU, and since when.
    vcpus: BTreeMap<CpuId, (Task, Ns)>,
    last: Ns,
}

#[derive(Debug)]
struct Thread {
    name: String,
    steps: Vec<Step>,
    life: ThreadState,
    /// CPU time since the last step.
    computed: Ns,
    /// A wake-up that arrived while the thread ran. It ends the next wait unless another one does.
    early: Option<Waker>,
    /// The wake-up that made it runnable, until it runs.
    woken: Option<Waker>,
}

#[derive(Debug, Clone, Copy)]
enum ThreadState {
    /// No event yet.
    Unknown,
    Runnable,
    Running {
        since: Ns,
    },
    Waits {
        since: Ns,
        device: bool,
        early: Option<Waker>,
    },
    Ended,
}

/// A wake-up, as a step of its waker.
#[derive(Debug, Clone, Copy)]
struct Waker {
    thread: u32,
    step: usize,
    cpu: CpuId,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Segment(Segment),
    /// Wakes this thread.
    Wake {
        wakee: u32,
        /// Whether it ended a wait.
        counts: bool,
        /// Whether it needed an interrupt to an idle vCPU.
        interrupt: bool,
    },
}

impl Threads {
    /// Time of the last event.
    pub(super) fn last_ns(&self) -> Ns {
        self.last
    }

    /// Processes the next event.
    pub(super) fn event(&mut self, event: &Event) {
        let at = event.at_ns;
        self.last = at;
        match &event.what {
            EventKind::Switch { cpu, from, prev_state, to } => {
                let (before, since) = self.vcpus.insert(*cpu, (*to, at)).unwrap_or((*from, 0));
                if let Task::Thread(thread) = from {
                    // A thread on its vCPU at the start of the recording, or after a gap, ran since then.
                    self.leave(*thread, *prev_state, at, since);
                }
                if let Task::Thread(thread) = to {
                    self.enter(*thread, *cpu, at, before == Task::Nobody && *from == Task::Nobody);
                }
            }
            EventKind::Wake { cpu, waker, wakee: Task::Thread(wakee) } => self.wake(*cpu, *waker, *wakee, at),
            EventKind::Thread { name, .. } => self.known.push(Thread {
                name: name.clone(),
                steps: Vec::new(),
                life: ThreadState::Unknown,
                computed: 0,
                early: None,
                woken: None,
            }),
            EventKind::Renamed { thread, name } => {
                if let Some(thread) = self.known.get_mut(*thread as usize) {
                    thread.name.clone_from(name);
                }
            }
            EventKind::Wake { .. } | EventKind::Lost { .. } => {}
        }
    }

    fn leave(&mut self, number: u32, prev_state: PrevState, at: Ns, on_vcpu_since: Ns) {
        let Some(thread) = self.known.get_mut(number as usize) else { return };
        match thread.life {
            ThreadState::Running { since } => thread.computed += at.saturating_sub(since),
            ThreadState::Unknown => thread.computed += at.saturating_sub(on_vcpu_since),
            _ => {}
        }
        thread.life = match prev_state {
            PrevState::Runnable => ThreadState::Runnable,
            PrevState::Blocked | PrevState::BlockedIo => {
                thread.flush();
                let early = thread.early.take();
                ThreadState::Waits { since: at, device: prev_state == PrevState::BlockedIo, early }
            }
            PrevState::Exited => {
                thread.flush();
                ThreadState::Ended
            }
        };
    }

    fn enter(&mut self, number: u32, cpu: CpuId, at: Ns, was_idle: bool) {
        let Some(thread) = self.known.get(number as usize) else { return };
        if let ThreadState::Waits { early, since, device } = thread.life {
            // No wake-up was recorded: it happened while the thread was going to sleep, or the event is lost.
            self.wait_ends(number, early, at.saturating_sub(since), device);
        }
        let Some(thread) = self.known.get_mut(number as usize) else { return };
        thread.life = ThreadState::Running { since: at };
        thread.early = None;
        if let Some(waker) = thread.woken.take().filter(|w| was_idle && w.cpu != cpu)
            && let Some(by) = self.known.get_mut(waker.thread as usize)
            && let Some(Step::Wake { interrupt, .. }) = by.steps.get_mut(waker.step)
        {
            *interrupt = true;
        }
    }

    fn wake(&mut self, cpu: CpuId, waker: Task, number: u32, at: Ns) {
        let Some(thread) = self.known.get(number as usize) else { return };
        let life = thread.life;
        if matches!(life, ThreadState::Runnable | ThreadState::Ended) {
            return;
        }
        let by = match waker {
            Task::Thread(waker) if waker != number => self.note_wake(waker, number, cpu, at),
            _ => None,
        };
        match life {
            ThreadState::Running { .. } => self.known[number as usize].early = by,
            ThreadState::Waits { since, device, .. } => {
                self.wait_ends(number, by, at.saturating_sub(since), device);
                self.known[number as usize].life = ThreadState::Runnable;
            }
            // It was asleep when the recording started, or was created just now.
            _ => {
                self.wait_ends(number, by, at, false);
                self.known[number as usize].life = ThreadState::Runnable;
            }
        }
    }

    /// Adds the wake-up to the waker's steps, after the computation before it.
    fn note_wake(&mut self, waker: u32, woken: u32, cpu: CpuId, at: Ns) -> Option<Waker> {
        let thread = self.known.get_mut(waker as usize)?;
        match &mut thread.life {
            ThreadState::Running { since } => {
                thread.computed += at.saturating_sub(*since);
                *since = at;
            }
            life @ ThreadState::Unknown => {
                let since = self.vcpus.get(&cpu).map_or(0, |(_, since)| *since);
                thread.computed += at.saturating_sub(since);
                *life = ThreadState::Running { since: at };
            }
            // Events around it are lost or out of order.
            _ => {}
        }
        thread.flush();
        thread.steps.push(Step::Wake { wakee: woken, counts: false, interrupt: false });
        Some(Waker { thread: waker, step: thread.steps.len() - 1, cpu })
    }

    /// Ends a thread's wait: by another thread's step, or after `length`.
    fn wait_ends(&mut self, number: u32, by: Option<Waker>, length: Ns, device: bool) {
        let noted = by.and_then(|by| {
            let Step::Wake { counts, .. } = self.known.get_mut(by.thread as usize)?.steps.get_mut(by.step)?
            else {
                return None;
            };
            *counts = true;
            Some(by)
        });
        let segment = match noted {
            Some(by) => {
                let next = u32::try_from(self.pairs.len()).unwrap_or(u32::MAX);
                Segment::Await(*self.pairs.entry((by.thread, number)).or_insert(next))
            }
            None if device => Segment::Io(length),
            None => Segment::Sleep(length),
        };
        if let Some(thread) = self.known.get_mut(number as usize) {
            thread.steps.push(Step::Segment(segment));
            thread.woken = noted;
        }
    }

    /// The replayable threads, and the pairs of waker and wakee.
    pub(super) fn finish(mut self, kernel: &Kernel) -> (Vec<Replayed>, Vec<(u32, u32)>) {
        let end = self.last;
        for thread in &mut self.known {
            if let ThreadState::Running { since } = thread.life {
                thread.computed += end.saturating_sub(since);
            }
            thread.flush();
        }
        let pairs = self.pairs;
        let threads = self.known.into_iter().zip(0..).map(|(thread, number)| Replayed {
            segments: segments(&thread.steps, kernel, |wakee| pairs.get(&(number, wakee)).copied()),
            name: thread.name,
        });
        let threads = threads.collect();
        let mut ordered: Vec<((u32, u32), u32)> = pairs.into_iter().collect();
        ordered.sort_by_key(|(_, place)| *place);
        (threads, ordered.into_iter().map(|(pair, _)| pair).collect())
    }
}

impl Thread {
    fn flush(&mut self) {
        let ns = std::mem::take(&mut self.computed);
        if ns > 0 {
            self.steps.push(Step::Segment(Segment::Compute(ns)));
        }
    }
}

/// The segments without the kernel's share: waits and wake-ups cost part of the surrounding computation.
fn segments(steps: &[Step], kernel: &Kernel, pair: impl Fn(u32) -> Option<u32>) -> Vec<Segment> {
    let mut out = Vec::with_capacity(steps.len());
    // What remains to be subtracted from the next computation, and the index of the previous one.
    let (mut owed, mut last) = (0, None);
    for step in steps {
        match *step {
            Step::Segment(Segment::Compute(ns)) => {
                let taken = ns.min(owed);
                owed -= taken;
                if ns > taken {
                    last = Some(out.len());
                    out.push(Segment::Compute(ns - taken));
                }
            }
            Step::Segment(wait) => {
                if let Some(Segment::Compute(ns)) = last.take().and_then(|at: usize| out.get_mut(at)) {
                    // At least 1 ns: something was computed, or there would be no segment.
                    *ns = ns.saturating_sub(kernel.wait.0).max(1);
                }
                owed = kernel.wait.1;
                out.push(wait);
            }
            Step::Wake { wakee, counts, interrupt } => {
                owed += kernel.wake + if interrupt { kernel.ipi } else { 0 };
                if let Some(pair) = pair(wakee).filter(|_| counts) {
                    out.push(Segment::Post(pair));
                }
            }
        }
    }
    out
}
