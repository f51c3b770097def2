//! A discrete-event simulation of a host with its scheduler, KVM, guests with their schedulers, and the
//! threads of programs. Deterministic: the same scenario and seed produce the same events, byte for byte.
//!
//! The guest policy of `gleaner run` controls it unchanged, through [`gleaner_engine::Machine`].
//! `docs/sim.md` describes what is modelled, with which numbers, and what is not.

mod coscheduling;
mod cost;
mod directed_yield;
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
pub mod scx;
mod spec;
pub mod sweep;
pub mod table;
mod timers;
mod trace;
mod tuning;
mod world;

pub use coscheduling::Coscheduling;
pub use cost::{Costs, NAMES as COST_TABLES};
pub use directed_yield::DirectedYield;
pub use driver::{Governor, govern, govern_all};
pub use ids::{Ns, Vm};
pub use program::{BarrierKind, ChannelKind, MAX_LOOPS, ObjectKind, Op, Program, ProgramError, Role};
pub use random::{Dist, Generator, Seeds};
pub use sched::{Entity, Fair, NICE_0, Rule};
pub use spec::{HostSpec, IdleMode, PauseLoops, Quota, Spec, SpecError, TaskSpec, UrgentRules, VmSpec};
pub use timers::Timers;
pub use trace::{Timeline, Trace};
pub use tuning::{POLICY_PARAMETERS, PolicyParameter, Tuning};
pub use world::{
    Blocked, CATEGORIES, CATEGORY_NAMES, Category, End, PcpuReport, Report, TaskReport, TaskTotals,
    VcpuCounts, VcpuReport, VmReport, World,
};
