//! JSON lines: one record per line. A torn last line, whose writer was killed, is ignored.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// A file of records that cannot be used. Nothing was changed because of it.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file that cannot be read.
        path: PathBuf,
        /// The kernel's error.
        r#source: std::io::Error,
    },
    /// A line is not a record.
    #[error("{}: line {line} is not a {what} record: {source}", path.display())]
    Malformed {
        /// The file with the malformed line.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// `journal` or `lease`.
        what: &'static str,
        /// The parser's error.
        r#source: serde_json::Error,
    },
    /// The first line has an unknown version, or none.
    #[error("{}: not a {what} file of version {version}", path.display())]
    Version {
        /// The file of unknown version.
        path: PathBuf,
        /// `journal` or `lease`.
        what: &'static str,
        /// The version that this program reads.
        version: u32,
    },
}

/// Reads every complete line of the file at `path` as a record of kind `what`.
///
/// A last line without a newline is ignored: its writer died while writing it.
///
/// # Errors
/// The file cannot be read, or a complete line is not a record.
pub fn read_lines<T: DeserializeOwned>(path: &Path, what: &'static str) -> Result<Vec<T>, LineError> {
    let bytes = fs::read(path).map_err(|source| LineError::Read { path: path.to_owned(), source })?;
    let complete = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    bytes[..complete]
        .split(|b| *b == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(i, line)| {
            serde_json::from_slice(line).map_err(|source| LineError::Malformed {
                path: path.to_owned(),
                line: i + 1,
                what,
                source,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_is_left_out_and_a_malformed_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "1\n2\n3").unwrap();
        assert_eq!(read_lines::<u32>(&path, "test").unwrap(), [1, 2]);
        fs::write(&path, "1\nx\n").unwrap();
        let error = read_lines::<u32>(&path, "test").unwrap_err().to_string();
        assert!(error.contains("line 2 is not a test record"), "{error}");
        fs::write(&path, "").unwrap();
        assert!(read_lines::<u32>(&path, "test").unwrap().is_empty());
        assert!(matches!(read_lines::<u32>(&dir.path().join("no"), "test"), Err(LineError::Read { .. })));
    }
}
