//! Formats shared by Gleaner's processes: journal and lease records (one JSON object per line), the report of
//! `gleaner doctor`, knowledge from earlier runs of programs, the result file of `gleaner bench`, the trace of
//! `gleaner record`, what `gleaner diagnose` found; and helpers for files that people write ([`source_text`]).
//!
//! Each format carries a version in its first record; readers reject unknown versions.

pub mod diagnosis;
pub mod doctor;
pub mod histogram;
pub mod journal;
pub mod lease;
mod lines;
pub mod memory;
pub mod result;
pub mod source_text;
pub mod trace_file;
pub mod unavailable;

pub use lines::{LineError, Lines, read_lines};
