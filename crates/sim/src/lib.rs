//! A machine made of events: a host with its scheduler, KVM, guests with theirs, and the threads of programs, in
//! simulated time. Deterministic: the same scenario and seed give the same events, to the byte.
//!
//! The guest policy of `gleaner run` drives it unchanged, through [`gleaner_engine::Machine`]. What is modelled, from
//! which numbers, and what is not: `docs/sim.md`.

mod cost;
mod driver;
mod ids;
pub mod library;
pub mod parallel;
pub mod predict;
mod program;
mod random;
pub mod recorded;
pub mod reproduce;
pub mod scenario;
mod sched;
mod spec;
pub mod sweep;
mod timers;
mod trace;
pub mod tune;
mod tuning;
mod world;

pub use cost::{Costs, NAMES as COST_TABLES};
pub use driver::{Governor, govern, govern_all};
pub use ids::{Ns, Vm};
pub use program::{BarrierKind, ChannelKind, MAX_LOOPS, ObjectKind, Op, Program, ProgramError, Role};
pub use random::{Dist, Generator, Seeds};
pub use sched::{Entity, Fair, NICE_0, Rule};
pub use spec::{HostSpec, IdleMode, PauseLoops, Spec, SpecError, TaskSpec, VmSpec};
pub use timers::Timers;
pub use trace::Trace;
pub use tuning::{KNOBS, Knob, Tuning};
pub use world::{
    Blocked, CATEGORIES, Category, End, PcpuReport, Report, TaskReport, TaskTotals, VcpuCounts, VcpuReport,
    VmReport, World,
};
