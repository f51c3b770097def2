//! Writing to the standard output and the standard error.

use std::fmt;
use std::io::{self, Write as _};

/// Why the standard output cannot be written. Each message contains its cause.
#[derive(Debug, thiserror::Error)]
pub enum OutError {
    /// Its reader has closed it.
    #[error("the standard output is closed")]
    Closed,
    /// It is full, or failed otherwise.
    #[error("cannot write to the standard output: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for OutError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Failed(error) }
    }
}

/// Writes a text to the standard output and flushes it, so that errors show at once.
///
/// # Errors
/// The output is closed or full.
pub fn write_out(text: fmt::Arguments<'_>) -> Result<(), OutError> {
    // Format first, so that a line is one write and not one per part.
    write_bytes(text.to_string().as_bytes())
}

/// Writes bytes to the standard output and flushes them.
///
/// # Errors
/// The output is closed or full.
pub fn write_bytes(bytes: &[u8]) -> Result<(), OutError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Writes a text to the standard error, ignoring errors.
pub fn write_err(text: fmt::Arguments<'_>) {
    // An error could not be reported anywhere.
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}
