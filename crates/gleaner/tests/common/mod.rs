//! Shared by the product's tests: the machine, which one test at a time may change, and processes that never outlive
//! their test.

#![allow(clippy::print_stderr, reason = "a test says what it leaves behind and measures")]
#![allow(dead_code, unused_imports, reason = "every test binary uses its own part of this")]

pub(crate) mod journal;
pub(crate) mod levers;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod terminal;
pub(crate) mod threads;
