//! The state of a simulated machine's parts.

use std::collections::VecDeque;

use gleaner_coordination::Urgency;

use super::counts::VcpuCounts;
use crate::cost::Costs;
use crate::ids::{Ns, Obj, Pcpu, Task, Thread, Vcpu, Vm};
use crate::program::{BarrierKind, ChannelKind, MAX_LOOPS, Op};
use crate::random::Generator;
use crate::sched::{Entity, Fair};
use crate::spec::UrgentRules;

/// State of a vCPU on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostState {
    /// Executing.
    Running,
    /// A pCPU that was idle is being prepared for it.
    Waking,
    /// Runnable, but its pCPU is busy.
    Waiting,
    /// Halted, with its pCPU polling for the wake-up.
    Polled,
    /// Halted.
    Blocked,
}

/// What a vCPU executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A thread computes.
    User,
    /// A thread spins in user mode.
    UserSpin,
    /// Kernel work for the thread, followed by the vCPU's `step`.
    Kernel,
    /// Spinning for the spinlock of a wait queue.
    LockSpin,
    /// Spinning for the acknowledgements of a TLB shootdown.
    AckSpin,
    /// An interrupt handler.
    Irq,
    /// Switching to the current thread.
    Switch,
    /// Entering idle.
    IdleEnter,
    /// Polling in the idle loop.
    IdlePoll,
    /// A yield thread.
    IdleYield,
    /// Halted.
    Halted,
}

impl Phase {
    /// Whether interrupts are taken at once.
    pub(crate) fn interruptible(self) -> bool {
        !matches!(self, Self::Kernel | Self::Irq | Self::Switch | Self::IdleEnter)
    }

    /// Whether it spins in the kernel, which includes the polling idle loop.
    pub(crate) fn spins(self) -> bool {
        matches!(self, Self::LockSpin | Self::AckSpin | Self::IdlePoll)
    }

    /// Whether it is in kernel mode, which includes the polling idle loop.
    pub(crate) fn in_kernel(self) -> bool {
        self == Self::IdlePoll || !matches!(self, Self::User | Self::UserSpin) && !self.idle()
    }

    /// Whether the vCPU has no thread.
    pub(crate) fn idle(self) -> bool {
        matches!(self, Self::IdleEnter | Self::IdlePoll | Self::IdleYield | Self::Halted)
    }
}

/// What follows when kernel work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The thread continues with its code.
    Return,
    /// The thread goes to sleep on a wait queue, unless that has changed.
    Wait,
    /// The next waiter is woken.
    Wake,
    /// The reschedule interrupt is sent.
    SendIpi(Vcpu),
    /// The exit for sending it ends.
    IpiSent,
    /// The thread sleeps for a time.
    SleepFor(Ns),
    /// The shootdown's interrupts are sent.
    SendFlush,
}

/// Waiters of an object in order of arrival, linked through the threads.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct List {
    pub(crate) head: Option<Thread>,
    pub(crate) tail: Option<Thread>,
    pub(crate) len: u32,
}

/// A wait queue in the kernel (a futex and its bucket).
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    pub(crate) waiters: List,
    /// Changes whenever the condition that waiters wait for does.
    pub(crate) sequence: u32,
    /// Holder of its spinlock.
    pub(crate) owner: Option<Vcpu>,
    /// vCPUs that spin for the spinlock, in order.
    pub(crate) contenders: VecDeque<Vcpu>,
    /// Threads that spin in user mode for the same change.
    pub(crate) spinners: Vec<Thread>,
}

/// Kind-specific state of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Mutex {
        holder: Option<Thread>,
        spin: Ns,
        handoff: bool,
        /// A thread sleeps on it or is about to: its release is a system call.
        contended: bool,
    },
    /// With a condition, the next two objects are its mutex and its condition.
    Barrier {
        parties: u32,
        arrived: u32,
        kind: BarrierKind,
        /// With a condition: whether the threads that arrived are leaving.
        leaving: bool,
    },
    /// The next three objects are its mutex and its two condition variables.
    Queue {
        len: u32,
        capacity: u32,
        open: u32,
        producers: u32,
        always_signals: bool,
    },
    /// Signals without a waiter so far, and the number of broadcasts. A queue's conditions need neither.
    Condition {
        signals: u32,
        broadcasts: u32,
    },
    Channel {
        posts: u64,
        kind: ChannelKind,
    },
}

/// A synchronisation object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) queue: WaitQueue,
}

/// State of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// On a runqueue or a vCPU.
    Ready,
    /// Asleep on an object.
    Blocked(Obj),
    /// Asleep until its timer expires.
    Timed,
    /// Exited.
    Ended,
}

/// A thread.
#[derive(Debug)]
pub(crate) struct ThreadData {
    pub(crate) task: Task,
    pub(crate) role: u16,
    pub(crate) state: ThreadState,
    pub(crate) vcpu: Vcpu,
    pub(crate) pc: u32,
    /// Progress within the current operation.
    pub(crate) step: u8,
    pub(crate) depth: u8,
    pub(crate) loops: [(u32, u64); MAX_LOOPS],
    /// Remainder of an interrupted computation.
    pub(crate) left: Ns,
    /// Work to add to the next phase.
    pub(crate) owed: Ns,
    /// Remaining time to spin in user mode.
    pub(crate) spin_left: Ns,
    /// Whether it has started to spin in the current wait.
    pub(crate) spun: bool,
    /// Whether it has slept in the current wait.
    pub(crate) slept: bool,
    /// The object's sequence before it waits.
    pub(crate) seen: u32,
    /// The condition's sequence, read under its mutex.
    pub(crate) condition: u32,
    /// The condition's number of broadcasts at that time.
    pub(crate) broadcasts: u32,
    pub(crate) entity: Entity,
    pub(crate) next: Option<Thread>,
    pub(crate) ready_at: Ns,
    /// When its waker started to wake it.
    pub(crate) woken_at: Option<Ns>,
    pub(crate) generator: Generator,
}

/// Waking the waiters of an object.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WakeJob {
    pub(crate) object: Obj,
    pub(crate) left: u32,
    pub(crate) sync: bool,
    pub(crate) began: Ns,
    /// The mutex on which all but the woken ones wait from now on.
    pub(crate) requeue: Option<Obj>,
}

impl Default for Obj {
    fn default() -> Self {
        Self(u32::MAX)
    }
}

/// What a vCPU's time is spent on. The categories add up to the time since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Category {
    /// Threads in user mode.
    User,
    /// The kernel on behalf of threads.
    Kernel,
    /// Threads that spin in user mode.
    UserSpin,
    /// Spinning for a kernel spinlock.
    LockSpin,
    /// Spinning for TLB acknowledgements.
    TlbSpin,
    /// Interrupt handlers.
    Irq,
    /// Switches between threads.
    Switch,
    /// Entering idle.
    IdleEnter,
    /// Polling in the idle loop.
    Poll,
    /// Yield threads.
    Yield,
    /// Halted, with the hypervisor polling.
    HostPoll,
    /// Halted.
    Halted,
    /// Woken, but not running yet.
    Waking,
    /// Runnable, but the host runs something else.
    Steal,
}

/// Number of categories.
pub const CATEGORIES: usize = Category::Steal as usize + 1;

/// A name for each [`Category`], in their order.
pub const CATEGORY_NAMES: [&str; CATEGORIES] = [
    "user",
    "kernel",
    "user_spin",
    "lock_spin",
    "tlb_spin",
    "irq",
    "switch",
    "idle_enter",
    "poll",
    "yield",
    "host_poll",
    "halted",
    "waking",
    "steal",
];

/// A vCPU.
#[allow(clippy::struct_excessive_bools, reason = "each is a state of its own")]
#[derive(Debug)]
pub(crate) struct VcpuData {
    pub(crate) vm: Vm,
    /// Number within the VM.
    pub(crate) cpu: u32,
    pub(crate) host: HostState,
    pub(crate) pcpu: Pcpu,
    pub(crate) entity: Entity,
    pub(crate) halt_poll: Ns,
    /// When it halted; cleared when halt polling has been adapted to the halt's length.
    pub(crate) blocked_at: Option<Ns>,
    /// Where its waker ran, and when the interrupt arrives.
    pub(crate) woken_from: Pcpu,
    pub(crate) arrives_at: Ns,
    /// For how long the host must not preempt it, and whether it runs first.
    pub(crate) urgency: Urgency,
    pub(crate) phase: Phase,
    /// What follows the kernel work. Not part of `Phase`, to keep that small: it is read very often.
    pub(crate) step: Step,
    /// Work until the phase ends.
    pub(crate) left: Ns,
    /// Time is accounted for until here.
    pub(crate) since: Ns,
    /// The interrupted phase and what was left of it.
    pub(crate) saved: (Phase, Ns),
    /// Work per 1000 ns.
    pub(crate) speed: u64,
    pub(crate) current: Option<Thread>,
    pub(crate) last: Option<Thread>,
    pub(crate) queue: Vec<Thread>,
    pub(crate) floor: Ns,
    pub(crate) need_resched: bool,
    pub(crate) pending: u8,
    pub(crate) in_flight: u8,
    /// The vCPUs whose shootdowns it must acknowledge.
    pub(crate) callers: Vec<Vcpu>,
    pub(crate) acks: u32,
    /// When the first of those shootdowns was sent.
    pub(crate) asked_at: Ns,
    /// Whether its TLB still holds the last thread's address space.
    pub(crate) lazy: bool,
    /// Targets of its own shootdown while it sends the interrupts.
    pub(crate) flushed: Vec<Vcpu>,
    /// Threads whose timers expired.
    pub(crate) expired: Vec<Thread>,
    pub(crate) wake: WakeJob,
    /// The object whose spinlock it holds or waits for.
    pub(crate) lock: Option<Obj>,
    /// Since when it has been spinning for it.
    pub(crate) lock_since: Ns,
    /// What to do with the spinlock once acquired.
    pub(crate) after: (Step, Ns),
    pub(crate) poll_limit: Ns,
    /// How long to poll after entering idle; 0: halt.
    pub(crate) then_poll: Ns,
    /// When polling ends.
    pub(crate) poll_ends: Ns,
    pub(crate) idle_since: Ns,
    pub(crate) halted_since: Ns,
    /// Average idle period, like the kernel's `avg_idle`.
    pub(crate) average_idle: Ns,
    pub(crate) pause_window: Ns,
    /// Whether it spins while pause-loop exits find nobody to yield to, and for how long in total.
    pub(crate) in_vain: bool,
    pub(crate) spun_in_vain: Ns,
    /// Whether it was preempted by the host.
    pub(crate) preempted: bool,
    /// Whether it yielded its pCPU in a pause-loop exit, and whether it is eligible again next time.
    pub(crate) gave_up: bool,
    pub(crate) next_time: bool,
    pub(crate) counts: VcpuCounts,
    pub(crate) time: [Ns; CATEGORIES],
}

/// Bits of pending interrupts.
pub(crate) mod irq {
    pub(crate) const RESCHED: u8 = 1;
    pub(crate) const FLUSH: u8 = 2;
    pub(crate) const TIMER: u8 = 4;
    pub(crate) const TICK: u8 = 8;
}

/// State of a pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PcpuState {
    Idle,
    Switching(Vcpu),
    Running(Vcpu),
    /// Polling for the wake-up of a halted vCPU.
    Polling(Vcpu),
}

/// A pCPU.
#[derive(Debug)]
pub(crate) struct PcpuData {
    pub(crate) state: PcpuState,
    pub(crate) socket: u32,
    pub(crate) sibling: Option<Pcpu>,
    pub(crate) queue: Vec<Vcpu>,
    /// vCPUs that the host policy puts first.
    pub(crate) urgent: VecDeque<Vcpu>,
    /// Whether the running one was picked because it is urgent, which gives it only a short slice.
    pub(crate) urgent_turn: bool,
    /// Whether a vCPU waits that would have preempted the running one, had that not been protected, or the pCPU not been
    /// switching to it.
    pub(crate) delayed: bool,
    /// The target of a directed yield, to run next.
    pub(crate) buddy: Option<Vcpu>,
    /// Minimum virtual run time of the VMs here; monotonic.
    pub(crate) floor: Ns,
    /// By VM, up to the last one that has been here.
    pub(crate) groups: Vec<super::group::Group>,
    /// Average idle period, like the kernel's `avg_idle`.
    pub(crate) average_idle: Ns,
    pub(crate) idle_from: Ns,
    pub(crate) last: Option<Vcpu>,
    /// The VM whose data is in its caches. Polling does not displace it.
    pub(crate) warm: Option<Vm>,
    pub(crate) slice_from: Ns,
    /// The running vCPU's virtual time is charged until here.
    pub(crate) charged: Ns,
    pub(crate) since: Ns,
    pub(crate) idle: Ns,
    pub(crate) guest: Ns,
    pub(crate) overhead: Ns,
    pub(crate) polling: Ns,
}

/// A VM.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Debug)]
pub(crate) struct VmData {
    pub(crate) name: String,
    pub(crate) first: u32,
    pub(crate) vcpus: u32,
    pub(crate) costs: Costs,
    pub(crate) fair: Fair,
    /// Weight against other VMs; 1024 is normal.
    pub(crate) shares: u64,
    pub(crate) pinned: bool,
    /// What idle vCPUs do.
    pub(crate) idle: super::IdleMode,
    /// Whether threads can run on each vCPU.
    pub(crate) active: Vec<bool>,
    pub(crate) halt_poll_max: Ns,
    pub(crate) pv_tlb: bool,
    pub(crate) lazy_tlb: bool,
    pub(crate) halted_is_preempted: bool,
    pub(crate) wake_queue: bool,
    pub(crate) requeue: bool,
    pub(crate) pv_lock: bool,
    pub(crate) ple: bool,
    pub(crate) urgent: UrgentRules,
    /// One bit per vCPU: set if it has nothing to run.
    pub(crate) idle_bits: Vec<u64>,
    /// vCPUs that are not blocked on the host.
    pub(crate) awake: u32,
    pub(crate) load: super::group::Load,
    /// vCPUs that spin in the kernel.
    pub(crate) spinning: u32,
    /// Threads waiting on its vCPUs' runqueues.
    pub(crate) queued: u32,
    pub(crate) ready: u32,
    pub(crate) timed: u32,
    pub(crate) alive: u32,
    pub(crate) yield_from: u32,
    /// The quota of its programs, if they have one.
    pub(crate) bandwidth: Option<super::quota::Bandwidth>,
}

/// A running program.
#[derive(Debug)]
pub(crate) struct TaskData {
    pub(crate) vm: Vm,
    pub(crate) name: String,
    pub(crate) codes: Vec<Vec<Op>>,
    pub(crate) roles: Vec<String>,
    pub(crate) objects: u32,
    /// Names of some objects, by their number in the task.
    pub(crate) names: Vec<(u16, String)>,
    pub(crate) first_object: u32,
    pub(crate) first_thread: u32,
    pub(crate) threads: u32,
    pub(crate) alive: u32,
    pub(crate) looping: bool,
    pub(crate) totals: super::TaskTotals,
}
