//! What the programs print, where that may fail, and the exit status that follows from it.
//!
//! `println!` panics where its output is closed or full, and clippy forbids it here. [`out!`] and [`outln!`] write to the
//! standard output and return what became of it; [`say!`] writes a line to the standard error, which must not matter to
//! anybody's exit status. [`failure`] turns the error of a `main` into its end: a closed output ends the program as it
//! ends any Unix tool, by SIGPIPE, but not before everything has been undone that the program had changed.

pub mod files;
mod status;
mod write;

pub use status::{Usage, failure, parse, text};
pub use write::{OutError, write_bytes, write_err, write_out};

/// Writes to the standard output, like `print!`; a [`Result`] with [`OutError`].
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::write_out(::core::format_args!($($text)*)) };
}

/// Writes a line to the standard output, like `println!`; a [`Result`] with [`OutError`].
#[macro_export]
macro_rules! outln {
    () => { $crate::write_out(::core::format_args!("\n")) };
    ($($text:tt)*) => { $crate::write_out(::core::format_args!("{}\n", ::core::format_args!($($text)*))) };
}

/// Writes a line to the standard error, like `eprintln!`, and goes on where that is not possible.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::write_err(::core::format_args!("{}\n", ::core::format_args!($($text)*))) };
}
