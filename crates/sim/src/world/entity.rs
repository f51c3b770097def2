//! What a simulated machine is made of.

use std::collections::VecDeque;

use serde::Serialize;

use crate::cost::Costs;
use crate::ids::{Ns, Obj, Pcpu, Task, Thread, Vcpu, Vm};
use crate::program::{BarrierKind, ChannelKind, MAX_LOOPS, Op};
use crate::random::Generator;
use crate::sched::{Entity, Fair};

/// What the host does with a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostState {
    /// It executes.
    Running,
    /// A pCPU that was idle is being made ready for it.
    Waking,
    /// It could run, but its pCPU does something else.
    Waiting,
    /// It halted, and its pCPU polls for its wake-up.
    Polled,
    /// It halted.
    Blocked,
}

/// What a vCPU executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its thread computes.
    User,
    /// Its thread spins in user mode.
    UserSpin,
    /// The kernel works for its thread, and then takes the vCPU's step.
    Kernel,
    /// It spins for the spinlock of a wait queue.
    LockSpin,
    /// It spins for the acknowledgements of a TLB shootdown.
    AckSpin,
    /// An interrupt handler.
    Irq,
    /// A switch to its current thread.
    Switch,
    /// On the way into the halt.
    IdleEnter,
    /// The idle loop polls.
    IdlePoll,
    /// A yield thread runs.
    IdleYield,
    /// It has halted.
    Halted,
}

impl Phase {
    /// Whether an interrupt is taken at once.
    pub(crate) fn interruptible(self) -> bool {
        !matches!(self, Self::Kernel | Self::Irq | Self::Switch | Self::IdleEnter)
    }

    /// Whether it spins in the kernel, the idle loop included.
    pub(crate) fn spins(self) -> bool {
        matches!(self, Self::LockSpin | Self::AckSpin | Self::IdlePoll)
    }

    /// Whether it is in the kernel, the idle loop that polls included.
    pub(crate) fn in_kernel(self) -> bool {
        self == Self::IdlePoll || !matches!(self, Self::User | Self::UserSpin) && !self.idle()
    }

    /// Whether the vCPU has no thread.
    pub(crate) fn idle(self) -> bool {
        matches!(self, Self::IdleEnter | Self::IdlePoll | Self::IdleYield | Self::Halted)
    }
}

/// How kernel work goes on when it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The thread goes on with its code.
    Return,
    /// The thread is put to sleep on a wait queue, unless that has changed.
    Wait,
    /// The next waiter is woken.
    Wake,
    /// The reschedule interrupt leaves.
    SendIpi(Vcpu),
    /// The exit for it is over.
    IpiSent,
    /// The thread is put to sleep until a time.
    SleepFor(Ns),
    /// The shootdown's interrupts leave.
    SendFlush,
}

/// Waiters of an object, in the order they came, linked through the threads.
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
    /// Changes with what waiters wait for.
    pub(crate) sequence: u32,
    /// Who holds its spinlock.
    pub(crate) owner: Option<Vcpu>,
    /// Who spins for that, in order.
    pub(crate) contenders: VecDeque<Vcpu>,
    /// Threads that spin in user mode for the same change.
    pub(crate) spinners: Vec<Thread>,
}

/// What an object is, beyond its wait queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Mutex {
        holder: Option<Thread>,
        spin: Ns,
        handoff: bool,
        /// Somebody sleeps on it, or is about to: its release is a system call.
        contended: bool,
    },
    /// One with a condition is followed by its mutex and its condition.
    Barrier {
        parties: u32,
        arrived: u32,
        kind: BarrierKind,
        /// With a condition: whether those who came are leaving.
        leaving: bool,
    },
    /// The mutex and the two condition variables are the objects after it.
    Queue {
        len: u32,
        capacity: u32,
        open: u32,
        producers: u32,
        always_signals: bool,
    },
    /// Signals that wait for a waiter, and how often all were let go on. A queue's conditions need neither.
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

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// On a runqueue or a vCPU.
    Ready,
    /// Asleep on an object.
    Blocked(Obj),
    /// Asleep until its timer.
    Timed,
    /// At its end.
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
    /// How far it is in the present operation.
    pub(crate) step: u8,
    pub(crate) depth: u8,
    pub(crate) loops: [(u32, u64); MAX_LOOPS],
    /// What is left of an interrupted computation.
    pub(crate) left: Ns,
    /// Work to add to the next phase.
    pub(crate) owed: Ns,
    /// What it may still spin in user mode.
    pub(crate) spin_left: Ns,
    /// Whether it has begun to spin for what it waits for.
    pub(crate) spun: bool,
    /// Whether it went to sleep for what it waits for.
    pub(crate) slept: bool,
    /// The sequence that it saw before it went to wait.
    pub(crate) seen: u32,
    /// The same of a condition, as seen under its mutex.
    pub(crate) condition: u32,
    /// The broadcasts that the condition had seen then.
    pub(crate) broadcasts: u32,
    pub(crate) entity: Entity,
    pub(crate) next: Option<Thread>,
    pub(crate) ready_at: Ns,
    /// When its waker began to wake it.
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
    /// The mutex for which those who are not woken wait from now on.
    pub(crate) requeue: Option<Obj>,
}

impl Default for Obj {
    fn default() -> Self {
        Self(u32::MAX)
    }
}

/// Where a vCPU's time went. The sum is the time since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Category {
    /// Threads in user mode.
    User,
    /// The kernel for threads.
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
    /// On the way into the halt.
    IdleEnter,
    /// The idle loop's polling.
    Poll,
    /// Yield threads.
    Yield,
    /// Halted; the hypervisor polls.
    HostPoll,
    /// Halted.
    Halted,
    /// Woken, not running yet.
    Waking,
    /// Runnable, but the host runs something else.
    Steal,
}

/// How many categories there are.
pub const CATEGORIES: usize = Category::Steal as usize + 1;

/// Counts of one vCPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct VcpuCounts {
    /// Idle periods that ended in a halt.
    pub halts: u64,
    /// Idle periods that began with retention.
    pub polls: u64,
    /// Of them, those that ended before the vCPU halted.
    pub polls_won: u64,
    /// Idle periods.
    pub idle_periods: u64,
    /// Reschedule interrupts received.
    pub resched_ipis: u64,
    /// TLB shootdown interrupts received.
    pub flush_ipis: u64,
    /// Times the host took its pCPU away.
    pub preempted: u64,
    /// Of them, with a wait queue's spinlock held.
    pub lock_holder_preempted: u64,
    /// Pause-loop exits.
    pub pause_exits: u64,
    /// Halts for which the hypervisor polled, successfully.
    pub host_polls_won: u64,
    /// Halts for which it polled in vain.
    pub host_polls_lost: u64,
}

/// A vCPU.
#[allow(clippy::struct_excessive_bools, reason = "each is a state of its own")]
#[derive(Debug)]
pub(crate) struct VcpuData {
    pub(crate) vm: Vm,
    /// Its number in the VM.
    pub(crate) cpu: u32,
    pub(crate) host: HostState,
    pub(crate) pcpu: Pcpu,
    pub(crate) entity: Entity,
    pub(crate) halt_poll: Ns,
    /// When it halted, until the hypervisor has learnt how long that took.
    pub(crate) blocked_at: Option<Ns>,
    /// Where the vCPU that woke it ran, and when the interrupt can be there.
    pub(crate) woken_from: Pcpu,
    pub(crate) arrives_at: Ns,
    /// Until when the host must not preempt it, and whether it was made to run first.
    pub(crate) urgency: gleaner_policy::host::Urgency,
    pub(crate) phase: Phase,
    /// What comes after the kernel's work. It is no part of the phase, which is looked at all the time.
    pub(crate) step: Step,
    /// Work until the phase ends.
    pub(crate) left: Ns,
    /// Up to when everything is accounted.
    pub(crate) since: Ns,
    /// What an interrupt interrupted.
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
    /// Whose shootdowns it must acknowledge.
    pub(crate) callers: Vec<Vcpu>,
    pub(crate) acks: u32,
    /// Whether its TLB still holds the address space of the last thread.
    pub(crate) lazy: bool,
    /// The targets of its own shootdown, while they are told.
    pub(crate) flushed: Vec<Vcpu>,
    /// Threads whose timers went off.
    pub(crate) expired: Vec<Thread>,
    pub(crate) wake: WakeJob,
    /// The object whose spinlock it holds or wants.
    pub(crate) lock: Option<Obj>,
    /// What comes after it got that.
    pub(crate) after: (Step, Ns),
    pub(crate) poll_limit: Ns,
    /// For how long it polls once it has become idle; 0: it halts.
    pub(crate) then_poll: Ns,
    /// Until when it polls, by the clock.
    pub(crate) poll_ends: Ns,
    pub(crate) idle_since: Ns,
    pub(crate) halted_since: Ns,
    /// The average idle period, as the kernel's `avg_idle`.
    pub(crate) average_idle: Ns,
    pub(crate) pause_window: Ns,
    /// Whether it spins, and pause-loop exits find nobody to yield to; for how long it did so.
    pub(crate) in_vain: bool,
    pub(crate) spun_in_vain: Ns,
    /// Whether its pCPU was taken away from it.
    pub(crate) preempted: bool,
    /// Whether it gave its pCPU up in a pause-loop exit; whether it may be yielded to all the same, next time.
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

/// What a pCPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PcpuState {
    Idle,
    Switching(Vcpu),
    Running(Vcpu),
    /// Polls for the wake-up of a vCPU that halted.
    Polling(Vcpu),
}

/// A pCPU.
#[derive(Debug)]
pub(crate) struct PcpuData {
    pub(crate) state: PcpuState,
    pub(crate) socket: u32,
    pub(crate) sibling: Option<Pcpu>,
    pub(crate) queue: Vec<Vcpu>,
    /// vCPUs that run before all others, by the host policy.
    pub(crate) urgent: VecDeque<Vcpu>,
    /// Whether the one that runs was picked for its urgency: it has borrowed a short slice only.
    pub(crate) urgent_turn: bool,
    /// Who was asked to run next by a directed yield.
    pub(crate) buddy: Option<Vcpu>,
    /// The least virtual run time of the VMs here; it never falls.
    pub(crate) floor: Ns,
    /// By VM, as far as any was here.
    pub(crate) groups: Vec<super::group::Group>,
    /// The average idle period, as the kernel's `avg_idle`.
    pub(crate) average_idle: Ns,
    pub(crate) idle_from: Ns,
    pub(crate) last: Option<Vcpu>,
    /// Whose memory is in its caches. Polling takes no room there.
    pub(crate) warm: Option<Vm>,
    pub(crate) slice_from: Ns,
    /// Up to when the running vCPU's virtual time is charged.
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
    /// Its weight against other VMs; 1024 is normal.
    pub(crate) shares: u64,
    pub(crate) pinned: bool,
    /// What idle vCPUs do.
    pub(crate) idle: super::IdleMode,
    /// By vCPU: whether threads may run on it.
    pub(crate) active: Vec<bool>,
    pub(crate) halt_poll_max: Ns,
    pub(crate) pv_tlb: bool,
    pub(crate) lazy_tlb: bool,
    pub(crate) halted_is_preempted: bool,
    pub(crate) wake_queue: bool,
    pub(crate) requeue: bool,
    pub(crate) pv_lock: bool,
    pub(crate) ple: bool,
    /// One bit per vCPU: nothing to run.
    pub(crate) idle_bits: Vec<u64>,
    /// vCPUs that are not blocked on the host.
    pub(crate) awake: u32,
    pub(crate) load: super::group::Load,
    /// vCPUs that spin in the kernel.
    pub(crate) spinning: u32,
    /// Threads that wait on its vCPUs' runqueues.
    pub(crate) queued: u32,
    pub(crate) ready: u32,
    pub(crate) timed: u32,
    pub(crate) alive: u32,
    pub(crate) yield_from: u32,
}

/// A running program.
#[derive(Debug)]
pub(crate) struct TaskData {
    pub(crate) vm: Vm,
    pub(crate) name: String,
    pub(crate) codes: Vec<Vec<Op>>,
    pub(crate) roles: Vec<String>,
    pub(crate) objects: u32,
    /// What some of them are called, by their numbers in the task.
    pub(crate) names: Vec<(u16, String)>,
    pub(crate) first_object: u32,
    pub(crate) first_thread: u32,
    pub(crate) threads: u32,
    pub(crate) alive: u32,
    pub(crate) looping: bool,
    pub(crate) totals: super::TaskTotals,
}
