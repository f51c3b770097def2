//! What can be traced, and the programs and events for it.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing to trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Who wakes whom, how long that takes, what threads compute and wait for. The basis of all other parts.
    Wakes,
    /// Idle periods of the vCPUs.
    Idle,
    /// Interrupts sent between vCPUs. Those received, including the timer's, are in every snapshot: the kernel counts
    /// them.
    Interrupts,
    /// TLB shootdowns.
    Tlb,
    /// How often the timer is programmed, and how often the tick stops.
    Timers,
    /// Spinning on locks in the kernel.
    Locks,
    /// Calls of `sched_yield`.
    Yields,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 7] =
        [Self::Wakes, Self::Idle, Self::Interrupts, Self::Tlb, Self::Timers, Self::Locks, Self::Yields];

    /// A short description, for messages.
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

/// A set of parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts(BTreeSet<Part>);

impl Parts {
    /// Every part.
    pub fn all() -> Self {
        Self(Part::ALL.into())
    }

    /// These parts, and the wake-ups, on which they depend.
    pub fn of(parts: impl IntoIterator<Item = Part>) -> Self {
        Self(parts.into_iter().chain([Part::Wakes]).collect())
    }

    /// Whether `part` is in the set.
    pub fn contains(&self, part: Part) -> bool {
        self.0.contains(&part)
    }
}

/// Where a program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A raw tracepoint with BTF.
    Tracepoint(&'static str),
    /// The entry or exit of a kernel function; needs ftrace.
    Function(&'static str),
    /// An iterator, which the tracer runs.
    Iterator,
    /// A raw tracepoint that the tracer triggers itself.
    Call(&'static str),
}

impl Event {
    /// The BTF type that the kernel must have for it.
    pub(crate) fn btf_type(self) -> String {
        match self {
            Self::Tracepoint(name) | Self::Call(name) => format!("btf_trace_{name}"),
            Self::Function(name) => name.to_owned(),
            Self::Iterator => "bpf_iter__task".to_owned(),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tracepoint(name) | Self::Call(name) => write!(f, "tracepoint {name}"),
            Self::Function(name) => write!(f, "function {name}"),
            Self::Iterator => f.write_str("iterator over tasks"),
        }
    }
}

/// One BPF program of `src/bpf`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) part: Part,
    pub(crate) event: Event,
    /// What it provides; `None`: the whole part.
    pub(crate) gives: Option<&'static str>,
    /// A program that this one replaces if it is not available.
    pub(crate) instead_of: Option<&'static str>,
    /// Whether its event can be as frequent and as cheap as a context switch: if tracing costs too much, it is attached
    /// only in windows. Other programs cost little beside what they count, such as an interrupt, or must not miss
    /// anything.
    pub(crate) windowed: bool,
}

impl Program {
    const fn new(part: Part, name: &'static str, event: Event) -> Self {
        Self { name, part, event, gives: None, instead_of: None, windowed: false }
    }

    const fn gives(self, what: &'static str) -> Self {
        Self { gives: Some(what), ..self }
    }

    const fn instead_of(self, other: &'static str) -> Self {
        Self { instead_of: Some(other), ..self }
    }

    const fn windowed(self) -> Self {
        Self { windowed: true, ..self }
    }

    /// What is missing without it.
    pub(crate) fn what(&self) -> &'static str {
        self.gives.unwrap_or(self.part.about())
    }
}

const SHOOTDOWN_TIME: &str = "how long a shootdown takes";
const TIMER_PROGRAMMED: &str = "how often the timer is programmed";
const SHOOTDOWN: Event = Event::Function("native_flush_tlb_multi");

/// Every program. One that replaces another comes before it.
#[rustfmt::skip]
pub(crate) const PROGRAMS: [Program; 20] = {
    use Event::{Call, Function, Iterator, Tracepoint};
    use Part::{Idle, Interrupts, Locks, Timers, Tlb, Wakes, Yields};
    [
        Program::new(Wakes, "on_waking", Tracepoint("sched_waking")).windowed(),
        Program::new(Wakes, "on_switch", Tracepoint("sched_switch")).windowed(),
        Program::new(Wakes, "on_fork", Tracepoint("sched_process_fork")),
        Program::new(Wakes, "first_pass", Iterator),
        Program::new(Wakes, "empty_program", Call("task_rename")).gives("the entry overhead of a program"),
        Program::new(Wakes, "on_tick", Tracepoint("local_timer_entry")).gives("what running threads do at each tick"),
        Program::new(Idle, "on_idle", Tracepoint("cpu_idle")),
        Program::new(Interrupts, "on_ipi", Tracepoint("ipi_send_cpu")).gives("interrupts sent to one vCPU"),
        Program::new(Interrupts, "on_ipi_mask", Tracepoint("ipi_send_cpumask"))
            .gives("interrupts sent to several vCPUs"),
        Program::new(Interrupts, "on_call_queued", Tracepoint("csd_queue_cpu"))
            .gives("wake-ups passed on by interrupt"),
        Program::new(Interrupts, "on_wake_without_ipi", Tracepoint("sched_wake_idle_without_ipi"))
            .gives("wake-ups without interrupt").windowed(),
        Program::new(Tlb, "on_tlb_flush", Tracepoint("tlb_flush")).windowed(),
        Program::new(Tlb, "on_shootdown", SHOOTDOWN).gives(SHOOTDOWN_TIME),
        Program::new(Tlb, "on_shootdown_done", SHOOTDOWN).gives(SHOOTDOWN_TIME),
        Program::new(Timers, "on_tick_stop", Tracepoint("tick_stop")).gives("stops of the tick"),
        Program::new(Timers, "on_timer_programmed", Function("clockevents_program_event"))
            .gives(TIMER_PROGRAMMED),
        Program::new(Timers, "on_write_msr", Tracepoint("write_msr"))
            .gives(TIMER_PROGRAMMED).instead_of("on_timer_programmed"),
        Program::new(Locks, "on_contention", Tracepoint("contention_begin")).windowed(),
        Program::new(Locks, "on_contention_end", Tracepoint("contention_end")).windowed(),
        Program::new(Yields, "on_yield", Function("do_sched_yield"))
            .gives("calls of sched_yield that find no other thread").windowed(),
    ]
};
