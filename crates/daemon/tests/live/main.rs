//! gleanerd in the foreground with real servers: what it puts in force, whom it gives way to, and what it puts back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test says what it measures")]

#[path = "../common/mod.rs"]
mod common;

mod clients;
mod configuration;
mod helped;
mod partners;
mod scraped;
mod stage;
mod surroundings;
mod theirs;
