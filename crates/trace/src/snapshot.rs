//! The counters at one moment.

use std::time::Duration;

use gleaner_kernel::interrupts::InterruptCounters;
use gleaner_policy::CpuId;
use serde::{Deserialize, Serialize};

use crate::{Cost, Histogram, NotAvailable, RunLengths};

/// Everything counted since the start of tracing. Threads, wake-ups, waits and edges are those of the scope; vCPUs are
/// the machine's.
///
/// If tracing all the time would cost too much, threads are traced in windows that stand for the time around them:
/// counts are then estimates for the time [`Snapshot::covered`]. Whatever lasts longer than a window (50 ms), or
/// crosses its edge, is missed. Idle periods, interrupts and ticks are always counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time since the start.
    pub elapsed: Duration,
    /// The time that the counts stand for: about [`Snapshot::elapsed`], but more precise for rates.
    pub covered: Duration,
    /// Wake-up latencies.
    pub wakes: Wakes,
    /// From preemption of a runnable thread until it runs again.
    pub preempted: Histogram,
    /// How long threads were blocked.
    pub waits: Waits,
    /// Spinning on locks in the kernel.
    pub kernel_spin: Histogram,
    /// How long TLB shootdowns took their senders.
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
    /// What did not fit.
    pub lost: Lost,
    /// Threads are currently traced for one in this many parts of the time; 1: always.
    pub one_in: u32,
    /// Cost of tracing.
    pub cost: Cost,
    /// What cannot be traced here, or no longer.
    pub missing: Vec<NotAvailable>,
}

impl Snapshot {
    /// Each kind of delay before a runnable thread runs, with its name: after wake-ups, then after preemption.
    pub const fn until_run(&self) -> [(&'static str, &Histogram); 5] {
        let [a, b, c, d] = self.wakes.kinds();
        [a, b, c, d, ("taken off, to run again", &self.preempted)]
    }
}

/// From the waker's call until the wakee runs, by what the wakee's vCPU was doing at the call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wakes {
    /// The waker's own vCPU.
    pub same_vcpu: Histogram,
    /// Another vCPU, which was running something.
    pub awake: Histogram,
    /// Another vCPU, which was polling.
    pub polling: Histogram,
    /// Another vCPU, which had halted.
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

    /// Number of wake-ups.
    pub fn count(&self) -> u64 {
        self.same_vcpu.count + self.awake.count + self.polling.count + self.halted.count
    }
}

/// How long threads were blocked until woken, by what they waited in.
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

/// Numbers of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Reschedule interrupts sent.
    pub sent_reschedule: u64,
    /// Function call interrupts sent, wake-ups among them.
    pub sent_call: u64,
    /// TLB shootdowns sent, by interrupt or hypercall.
    pub sent_tlb: u64,
    /// Programming of the timer, each an exit in a VM.
    pub timer_programmed: u64,
    /// Stops of the tick for an idle period.
    pub tick_stopped: u64,
    /// Wake-ups of an idle vCPU without an interrupt.
    pub wake_without_ipi: u64,
    /// Wake-ups queued on the wakee's vCPU.
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
    /// Operations on locks with priority inheritance.
    pub pi: u64,
}

/// One vCPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcpu {
    /// Its number in the guest.
    pub cpu: CpuId,
    /// Idle periods, or parts of them, spent polling.
    pub polls: Histogram,
    /// Idle periods spent halted.
    pub halts: Histogram,
    /// Run-queue delay of the scope's threads: from being woken on this vCPU while it was awake, or preempted on it,
    /// until they ran on it.
    pub delays: Histogram,
    /// Events on it, whatever caused them.
    pub events: Events,
    /// Interrupts received, as counted by the kernel.
    pub received: InterruptCounters,
}

/// All threads with the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStats {
    /// The name, at most 15 bytes.
    pub name: String,
    /// CPU time.
    pub cpu_time: Duration,
    /// Number of stretches of computation between two waits.
    pub segments: u64,
    /// Total length of these stretches.
    pub segment_time: Duration,
    /// Histogram of these stretches.
    pub runs: RunLengths,
    /// Preemptions, including `sched_yield`.
    pub preempted: u64,
    /// Calls of `sched_yield`; 0 if they are not traced.
    pub yields: u64,
    /// Calls of `sched_yield` that let another thread run.
    pub yielded: u64,
    /// Timer interrupts while it ran.
    pub ticks: u64,
    /// Of `ticks`, those in user mode.
    pub user_ticks: u64,
    /// Of `user_ticks`, those in a loop that only waits for another thread: spinning at user level. Known on x86 only.
    pub spin_ticks: u64,
    /// Of `ticks`, those in `sched_yield`.
    pub yield_ticks: u64,
    /// Number of wake-ups.
    pub woken: u64,
    /// Sum of its wake-up latencies.
    pub woken_time: Duration,
}

/// Wake-ups from threads of one name to those of another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The waker's name; `(interrupt)` if an idle vCPU was interrupted.
    pub waker: String,
    /// The wakee's name.
    pub wakee: String,
    /// Number of wake-ups.
    pub count: u64,
    /// Sum of their latencies.
    pub total: Duration,
    /// Of `count`, those whose vCPU had halted.
    pub halted: u64,
    /// Of `count`, those whose vCPU was polling.
    pub polling: u64,
}

/// What did not fit into a full map, or for lack of memory. It is missing elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Threads that could not be traced, counted at each wake-up.
    pub tasks: u64,
    /// Threads that are counted as `(other)`, at each sample.
    pub names: u64,
    /// Wake-ups without an edge.
    pub edges: u64,
}

impl Events {
    /// The difference from `earlier`.
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
