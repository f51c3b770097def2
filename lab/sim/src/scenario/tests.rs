//! Scenario files: valid ones, and error messages.

mod files;
mod limits;
mod programs;
