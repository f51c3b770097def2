//! The decisions of `scx_gleaner` once more. A record of the scheduler ([`gleaner_coordination::record`]) has what the kernel
//! and KVM reported to it, and what it decided. Given the same events this decides by itself, and [`replay`] compares the two.
//!
//! It keeps its own account of queues, virtual times and urgency, so that whatever the scheduler does otherwise leads to
//! other decisions sooner or later. The arithmetic of both is `logic.h`. Where pCPUs decide while another one sends an
//! interrupt, the scheduler may have seen what follows from it or not; the record must fit one of the two.

mod fair;
mod host;
mod place;
mod queue;
mod replay;
#[cfg(test)]
mod tests;
mod urgent;
mod world;

pub use replay::{Agreement, Count, Difference, Made, RecordError, is_record, replay};
