//! Output of programs.

use std::fs;
use std::path::Path;

use super::error::{Result, ServersError};

/// Reads a log, which need not be UTF-8.
pub(crate) fn read(log: &Path) -> Result<String> {
    let bytes = fs::read(log).map_err(ServersError::file("read", log))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of a log, joined into one, for error messages.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join(" / ")
}
