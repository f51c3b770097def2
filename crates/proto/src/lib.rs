//! The words between Gleaner's processes: journal records and lease records, one JSON object per line, and the
//! report of `gleaner doctor`.
//!
//! Each format carries a version in its first record; a reader refuses versions it does not know.

pub mod doctor;
pub mod journal;
pub mod lease;
mod lines;

pub use lines::{LineError, read_lines};
