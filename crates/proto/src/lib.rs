//! The words between Gleaner's processes: journal records and lease records, one JSON object per line, the report of
//! `gleaner doctor`, what is known of programs from earlier runs, the result file of `gleaner bench`, the trace of `gleaner record`, the account of `gleaner sim reproduce`; and
//! what all files have in common that people write ([`written`]).
//!
//! Each format carries a version in its first record; a reader refuses versions it does not know.

pub mod doctor;
pub mod journal;
pub mod lease;
mod lines;
pub mod memory;
pub mod reproduction;
pub mod result;
pub mod trace_file;
pub mod written;

pub use lines::{LineError, read_lines};
