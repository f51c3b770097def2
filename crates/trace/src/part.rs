//! What can be traced, and which events it takes.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing to trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Who wakes whom, how long that takes, what threads compute and wait for. Everything else builds on it.
    Wakes,
    /// Idle periods of the vCPUs.
    Idle,
    /// Interrupts between vCPUs, sent and received.
    Interrupts,
    /// TLB shootdowns.
    Tlb,
    /// Timer interrupts, how often the timer is programmed, and how often the tick stops.
    Timers,
    /// Spinning for locks inside the kernel.
    Locks,
    /// Calls of `sched_yield`.
    Yields,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 7] =
        [Self::Wakes, Self::Idle, Self::Interrupts, Self::Tlb, Self::Timers, Self::Locks, Self::Yields];

    /// What it is, in words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Wakes => "wake-ups",
            Self::Idle => "idle periods",
            Self::Interrupts => "interrupts between vCPUs",
            Self::Tlb => "TLB shootdowns",
            Self::Timers => "timers",
            Self::Locks => "spinning in the kernel",
            Self::Yields => "sched_yield",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.about())
    }
}

/// What to trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts(BTreeSet<Part>);

impl Parts {
    /// Everything.
    pub fn all() -> Self {
        Self(Part::ALL.into())
    }

    /// These, and the wake-ups, on which the others build.
    pub fn of(parts: impl IntoIterator<Item = Part>) -> Self {
        Self(parts.into_iter().chain([Part::Wakes]).collect())
    }

    /// Whether `part` is among them.
    pub fn contains(&self, part: Part) -> bool {
        self.0.contains(&part)
    }
}

/// Where a program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A raw tracepoint with BTF.
    Tracepoint(&'static str),
    /// The entry or exit of a kernel function, which needs ftrace.
    Function(&'static str),
    /// An iterator, run by the tracer itself.
    Iterator,
    /// None: the tracer calls it.
    Call,
}

impl Event {
    /// The name of the BTF type without which it cannot be.
    pub(crate) fn btf_type(self) -> String {
        match self {
            Self::Tracepoint(name) => format!("btf_trace_{name}"),
            Self::Function(name) => name.to_owned(),
            Self::Iterator | Self::Call => "bpf_iter__task".to_owned(),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tracepoint(name) => write!(f, "tracepoint {name}"),
            Self::Function(name) => write!(f, "function {name}"),
            Self::Iterator => f.write_str("iterator over tasks"),
            Self::Call => f.write_str("call of a program"),
        }
    }
}

/// One BPF program of `src/bpf`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) part: Part,
    pub(crate) event: Event,
    /// What is missing without it, in words; `None`: the whole part.
    pub(crate) gives: Option<&'static str>,
    /// Only wanted where this other program cannot be had.
    pub(crate) instead_of: Option<&'static str>,
}

const fn program(name: &'static str, part: Part, event: Event) -> Program {
    Program { name, part, event, gives: None, instead_of: None }
}

const fn extra(name: &'static str, part: Part, event: Event, gives: &'static str) -> Program {
    Program { name, part, event, gives: Some(gives), instead_of: None }
}

/// Every program; one that another is to stand in for comes before that one.
pub(crate) const PROGRAMS: [Program; 24] = {
    use Event::{Call, Function, Iterator, Tracepoint};
    use Part::{Idle, Interrupts, Locks, Timers, Tlb, Wakes, Yields};
    [
        program("on_waking", Wakes, Tracepoint("sched_waking")),
        program("on_switch", Wakes, Tracepoint("sched_switch")),
        program("on_fork", Wakes, Tracepoint("sched_process_fork")),
        program("first_look", Wakes, Iterator),
        extra("nothing", Wakes, Call, "what measuring the cost of tracing costs itself"),
        extra("on_tick", Wakes, Tracepoint("local_timer_entry"), "what running threads do at each tick"),
        program("on_idle", Idle, Tracepoint("cpu_idle")),
        extra("on_ipi", Interrupts, Tracepoint("ipi_send_cpu"), "interrupts sent to one vCPU"),
        extra("on_ipi_mask", Interrupts, Tracepoint("ipi_send_cpumask"), "interrupts sent to several vCPUs"),
        extra("on_call_queued", Interrupts, Tracepoint("csd_queue_cpu"), "wake-ups handed over by interrupt"),
        extra(
            "on_wake_without_ipi",
            Interrupts,
            Tracepoint("sched_wake_idle_without_ipi"),
            "wake-ups without interrupt",
        ),
        extra("on_reschedule", Interrupts, Tracepoint("reschedule_entry"), "reschedule interrupts received"),
        extra("on_call", Interrupts, Tracepoint("call_function_entry"), "function call interrupts received"),
        extra(
            "on_single_call",
            Interrupts,
            Tracepoint("call_function_single_entry"),
            "single function call interrupts received",
        ),
        program("on_tlb_flush", Tlb, Tracepoint("tlb_flush")),
        extra("on_shootdown", Tlb, Function("native_flush_tlb_multi"), "how long a shootdown takes"),
        extra("on_shootdown_done", Tlb, Function("native_flush_tlb_multi"), "how long a shootdown takes"),
        extra("on_timer", Timers, Tracepoint("local_timer_entry"), "timer interrupts"),
        extra("on_tick_stop", Timers, Tracepoint("tick_stop"), "stops of the tick"),
        extra(
            "on_timer_programmed",
            Timers,
            Function("clockevents_program_event"),
            "how often the timer is programmed",
        ),
        Program {
            instead_of: Some("on_timer_programmed"),
            ..extra("on_write_msr", Timers, Tracepoint("write_msr"), "how often the timer is programmed")
        },
        program("on_contention", Locks, Tracepoint("contention_begin")),
        program("on_contention_end", Locks, Tracepoint("contention_end")),
        extra(
            "on_yield",
            Yields,
            Function("do_sched_yield"),
            "calls of sched_yield that find no other thread",
        ),
    ]
};
