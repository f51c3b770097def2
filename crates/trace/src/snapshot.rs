//! What was counted up to one moment.

use std::time::Duration;

use gleaner_kernel::interrupts::InterruptCounters;
use gleaner_policy::CpuId;
use serde::{Deserialize, Serialize};

use crate::{Cost, Histogram, NotAvailable, RunLengths};

/// Everything counted from the start of tracing up to now. Threads, wakes, waits and edges are those of the scope;
/// vCPUs are those of the machine.
///
/// Where tracing all the time would cost too much, threads are followed in windows of time, and what
/// was seen there counts for the time around: counts are estimates then, of the time [`Snapshot::covered`]. What lasts
/// longer than a window (50 ms), or lies across the edge of one, is not seen then. Idle periods, interrupts and ticks are counted all
/// the time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Since the start.
    pub elapsed: Duration,
    /// The time for which stands what was followed: about [`Snapshot::elapsed`], more exact for rates.
    pub covered: Duration,
    /// Wake-up latencies.
    pub wakes: Wakes,
    /// From being taken off a vCPU, while runnable, to running again.
    pub preempted: Histogram,
    /// How long threads were blocked.
    pub waits: Waits,
    /// Spinning for locks inside the kernel.
    pub kernel_spin: Histogram,
    /// What a TLB shootdown takes its sender.
    pub shootdown: Histogram,
    /// Events caused by the scope's threads.
    pub events: Events,
    /// Wake-ups by futex, from the scope's wakers.
    pub futexes: Futexes,
    /// Each online vCPU.
    pub vcpus: Vec<Vcpu>,
    /// Threads by name, most CPU time first.
    pub threads: Vec<ThreadStats>,
    /// The wake graph, most wake-ups first.
    pub edges: Vec<Edge>,
    /// What had no place.
    pub lost: Lost,
    /// Threads are followed for one such part of the time now; 1: always.
    pub one_in: u32,
    /// What tracing costs.
    pub cost: Cost,
    /// What cannot be traced here, or no longer.
    pub missing: Vec<NotAvailable>,
}

impl Snapshot {
    /// Each kind of time until a runnable thread runs, with its name: after wake-ups, then after being taken off a vCPU.
    pub const fn until_run(&self) -> [(&'static str, &Histogram); 5] {
        let [a, b, c, d] = self.wakes.kinds();
        [a, b, c, d, ("taken off, to run again", &self.preempted)]
    }
}

/// From the waker's call until the wakee runs, by what the wakee's vCPU was doing when the waker called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wakes {
    /// It was the waker's own vCPU.
    pub same_vcpu: Histogram,
    /// Another one, which ran something.
    pub awake: Histogram,
    /// Another one, which was idle and polled.
    pub polling: Histogram,
    /// Another one, which had halted.
    pub halted: Histogram,
}

impl Wakes {
    /// Each kind with its name.
    pub const fn kinds(&self) -> [(&'static str, &Histogram); 4] {
        [
            ("same vCPU", &self.same_vcpu),
            ("other vCPU, awake", &self.awake),
            ("other vCPU, polling", &self.polling),
            ("other vCPU, halted", &self.halted),
        ]
    }

    /// All of them.
    pub fn count(&self) -> u64 {
        self.same_vcpu.count + self.awake.count + self.polling.count + self.halted.count
    }
}

/// How long threads were blocked until somebody woke them, by what they waited in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// A futex: locks, condition variables, barriers, joins.
    pub futex: Histogram,
    /// `read`, `write`, `recv`, `send`, `accept` and the like.
    pub socket: Histogram,
    /// `poll`, `select`, `epoll`.
    pub poll: Histogram,
    /// `nanosleep`.
    pub sleep: Histogram,
    /// A block device.
    pub io: Histogram,
    /// Anything else.
    pub other: Histogram,
}

impl Waits {
    /// Each kind with its name.
    pub const fn kinds(&self) -> [(&'static str, &Histogram); 6] {
        [
            ("futex: locks, conditions, barriers", &self.futex),
            ("socket, pipe or file", &self.socket),
            ("poll, select or epoll", &self.poll),
            ("sleep", &self.sleep),
            ("block device", &self.io),
            ("anything else", &self.other),
        ]
    }
}

/// How often something happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Reschedule interrupts sent.
    pub sent_reschedule: u64,
    /// Function call interrupts sent, wake-ups among them.
    pub sent_call: u64,
    /// TLB shootdowns sent, by interrupt or hypercall.
    pub sent_tlb: u64,
    /// How often the timer was programmed: in a VM each time an exit.
    pub timer_programmed: u64,
    /// How often the tick was stopped for an idle period.
    pub tick_stopped: u64,
    /// Wake-ups of an idle vCPU that needed no interrupt.
    pub wake_without_ipi: u64,
    /// Wake-ups that were handed to the wakee's vCPU to carry out.
    pub wake_queued: u64,
    /// Calls of `sched_yield`.
    pub yields: u64,
}

/// Wake-ups by futex operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Futexes {
    /// `FUTEX_WAKE` and its variants.
    pub wake: u64,
    /// `FUTEX_REQUEUE` and its variants.
    pub requeue: u64,
    /// Locks with priority inheritance.
    pub pi: u64,
}

/// One vCPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcpu {
    /// Its number.
    pub cpu: CpuId,
    /// Idle periods, or the parts of them, in which it polled.
    pub polls: Histogram,
    /// Idle periods in which it halted.
    pub halts: Histogram,
    /// Run-queue delay of the scope's threads: from being woken on it while it was awake, or taken off it, until they
    /// ran on it.
    pub delays: Histogram,
    /// What happened on it, whoever caused that.
    pub events: Events,
    /// Interrupts that it received, as the kernel counts them.
    pub received: InterruptCounters,
}

/// The threads of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStats {
    /// The name, at most 15 bytes.
    pub name: String,
    /// Time on a vCPU.
    pub cpu_time: Duration,
    /// Stretches of computation between two waits.
    pub segments: u64,
    /// Their sum.
    pub segment_time: Duration,
    /// Their lengths.
    pub runs: RunLengths,
    /// How often taken off a vCPU while runnable, `sched_yield` included.
    pub preempted: u64,
    /// Calls of `sched_yield`; 0 where they cannot be seen.
    pub yields: u64,
    /// Calls of `sched_yield` that let another thread run.
    pub yielded: u64,
    /// Timer interrupts that met it running.
    pub ticks: u64,
    /// Of these, in user mode.
    pub user_ticks: u64,
    /// Of these, in a loop that only waits for another thread: spinning at user level. Known on x86 only.
    pub spin_ticks: u64,
    /// Of `ticks`, within `sched_yield`.
    pub yield_ticks: u64,
    /// How often woken.
    pub woken: u64,
    /// The sum of its wake-up latencies.
    pub woken_time: Duration,
}

/// Wake-ups from one name of threads to another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Who woke; `(interrupt)` where an idle vCPU was interrupted.
    pub waker: String,
    /// Who was woken.
    pub wakee: String,
    /// How often.
    pub count: u64,
    /// The sum of the latencies.
    pub total: Duration,
    /// How many of these wakees' vCPUs had halted.
    pub halted: u64,
    /// How many of them polled.
    pub polling: u64,
}

/// What had no place in a map that was full, or no memory. What is counted here is missing elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Threads that could not be followed, counted at each wake-up.
    pub tasks: u64,
    /// Threads that are counted as `(other)`, at each look.
    pub names: u64,
    /// Wake-ups that are in no edge.
    pub edges: u64,
}

impl Events {
    /// What came since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let d = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            sent_reschedule: d(self.sent_reschedule, earlier.sent_reschedule),
            sent_call: d(self.sent_call, earlier.sent_call),
            sent_tlb: d(self.sent_tlb, earlier.sent_tlb),
            timer_programmed: d(self.timer_programmed, earlier.timer_programmed),
            tick_stopped: d(self.tick_stopped, earlier.tick_stopped),
            wake_without_ipi: d(self.wake_without_ipi, earlier.wake_without_ipi),
            wake_queued: d(self.wake_queued, earlier.wake_queued),
            yields: d(self.yields, earlier.yields),
        }
    }
}
