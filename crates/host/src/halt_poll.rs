//! KVM's halt polling as a lever: how long KVM polls for a halted vCPU before it gives the pCPU away.
//!
//! [`Parameters`] are what the module has now; a [`Holding`] changes them under leases, which are undone however the
//! holder ends; [`Auto`] decides by experiments whether polling pays, without I/O, on [`Sample`]s of what the VMs did.

mod auto;
mod decision;
mod drive;
mod holding;
pub mod journal;
mod parameters;
mod sample;
pub mod text;

pub use auto::{Auto, Config, Next, Step};
pub use decision::{Decision, Outcome, Side, Why};
pub use drive::{CHECK_INTERVAL, Vms, drive};
pub use holding::{HoldError, Holding, STATE_DIR, left_behind, restore};
pub use parameters::{Change, Parameters, parse_limit};
pub use sample::{Sample, VmWaits, Wakes};

#[cfg(test)]
mod testing;
