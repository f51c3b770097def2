//! Output of the programs, where that can fail, and the resulting exit status.
//!
//! `println!` panics if its output is closed or full, and clippy forbids it here. [`out!`] and [`outln!`] write
//! to the standard output and return a result; [`say!`] writes a line to the standard error, which never
//! affects the exit status. [`failure`] turns the error of a `main` into its end: a closed output ends the
//! program by SIGPIPE, like any Unix tool, but only after it has undone all its changes.

pub mod config;
pub mod files;
mod generate;
mod sibling;
mod status;
pub mod times;
mod write;

pub use generate::{CompletionArgs, Generate, ManArgs};
pub use sibling::{SiblingError, become_sibling, sibling};
pub use status::{Usage, failure, parse, text};
pub use write::{OutError, write_bytes, write_err, write_out};

/// Writes to the standard output, like `print!`; returns a [`Result`] with [`OutError`].
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::write_out(::core::format_args!($($text)*)) };
}

/// Writes a line to the standard output, like `println!`; returns a [`Result`] with [`OutError`].
#[macro_export]
macro_rules! outln {
    () => { $crate::write_out(::core::format_args!("\n")) };
    ($($text:tt)*) => { $crate::write_out(::core::format_args!("{}\n", ::core::format_args!($($text)*))) };
}

/// Writes a line to the standard error, like `eprintln!`, ignoring errors.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::write_err(::core::format_args!("{}\n", ::core::format_args!($($text)*))) };
}
