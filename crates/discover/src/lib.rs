//! Which workloads this machine runs, and which of them could be losing time to blocked-waiter wakeups.
//!
//! [`Pulse`] is one cheap sensor for the whole machine, [`Alarm`] wakes the daemon when a load begins, [`Survey`]
//! finds the workloads and what each consumes, and [`Engagement`] decides, without I/O, which of them to engage.
//! [`Attention`] says when to use which, so that an idle machine is left asleep. `docs/discovery.md` has the whole
//! picture.

mod alarm;
mod attention;
mod candidate;
mod engage;
mod file;
mod hierarchy;
mod label;
mod names;
mod partners;
mod process;
mod pulse;
mod surroundings;
mod survey;
mod tally;
mod walk;

#[cfg(test)]
mod testing;

pub use alarm::{Alarm, AlarmUnavailable};
pub use attention::{Attention, Next};
pub use candidate::{Activity, Candidate, Key, Kind, Main, Subject};
pub use engage::{Changes, EngageConfig, Engagement, Release, Seen, Standing};
pub use label::unit_of;
pub use partners::{Partnership, Woken, groups, partnerships};
pub use pulse::{Pulse, Reading};
pub use surroundings::{CgroupLayout, Surroundings};
pub use survey::Survey;
