//! Scenario files: what they can say, and how mistakes are told.

mod files;
mod limits;
mod programs;
