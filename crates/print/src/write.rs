//! Writing to the standard output and the standard error.

use std::fmt;
use std::io::{self, Write as _};

/// Why nothing more goes to the standard output. Each message holds its cause.
#[derive(Debug, thiserror::Error)]
pub enum OutError {
    /// Its reader has gone, so nobody wants the rest.
    #[error("the standard output is closed")]
    Closed,
    /// It is full, or broken in another way.
    #[error("cannot write to the standard output: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for OutError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Failed(error) }
    }
}

/// Writes a text to the standard output, to its end: what does not arrive is known at once.
///
/// # Errors
/// The output is closed or full.
pub fn write_out(text: fmt::Arguments<'_>) -> Result<(), OutError> {
    // A text in one piece is written in one piece; formatting into the output would write each part of a line.
    write_bytes(text.to_string().as_bytes())
}

/// Writes bytes to the standard output, to their end.
///
/// # Errors
/// The output is closed or full.
pub fn write_bytes(bytes: &[u8]) -> Result<(), OutError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Writes a text to the standard error, if that is possible.
pub fn write_err(text: fmt::Arguments<'_>) {
    // Nobody is left who could be told.
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}
