//! The loop of observe, decide, apply and journal, and the leases that undo; used by `run`, the daemon and the
//! simulator.

mod engine;
mod journal;
mod lease;
pub mod live;
mod machine;
mod memory;
mod state;

pub use engine::{FIRST_SAMPLE, Pause, Run, run};
pub use journal::Journal;
pub use lease::{LeaseBook, LeaseError, Outcome, UndoResult, restore};
pub use machine::{Machine, Wait, Wake};
pub use memory::{MemoryDir, MemoryError};
pub use state::{Holder, StateDir, StateError};
