//! The loop of observe, decide, apply and journal, and the leases that undo; used by `run`, the daemon and the
//! simulator.

mod clock;
mod engine;
mod journal;
mod lease;
pub mod live;
mod machine;
mod memory;
mod state;

pub use clock::unix_ms;
pub use engine::{Account, FIRST_SAMPLE, Pause, Run, run};
pub use journal::Journal;
pub use lease::{LeaseBook, LeaseError, Outcome, UndoResult, restore};
pub use machine::{Machine, Wait, Wake};
pub use memory::{Memory, MemoryDir, MemoryError, program_of_command, program_of_process};
pub use state::{Holder, StateDir, StateError};
