//! JSON lines: one record per line. A torn last line, whose writer was killed, is ignored.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::marker::PhantomData;
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

/// The records of a file, read one by one.
#[derive(Debug)]
pub struct Lines<T> {
    path: PathBuf,
    what: &'static str,
    file: BufReader<File>,
    /// The line that was read last, and its number, from 1.
    line: Vec<u8>,
    number: usize,
    record: PhantomData<fn() -> T>,
}

impl<T> Lines<T> {
    /// Opens the file at `path`, whose records are called `what` in errors.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, what: &'static str) -> Result<Self, LineError> {
        let file = File::open(path).map_err(|source| LineError::Read { path: path.to_owned(), source })?;
        let (file, record) = (BufReader::new(file), PhantomData);
        Ok(Self { path: path.to_owned(), what, file, line: Vec::new(), number: 0, record })
    }
}

/// Each complete line as a record. A last line without a newline is left out: its writer died while writing it. What
/// cannot be read, or is not a record, is an error.
impl<T: DeserializeOwned> Iterator for Lines<T> {
    type Item = Result<T, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.line.clear();
            self.number += 1;
            if let Err(source) = self.file.read_until(b'\n', &mut self.line) {
                return Some(Err(LineError::Read { path: self.path.clone(), source }));
            }
            let line = self.line.strip_suffix(b"\n")?;
            if !line.is_empty() {
                let (path, line_number, what) = (&self.path, self.number, self.what);
                return Some(serde_json::from_slice(line).map_err(|source| LineError::Malformed {
                    path: path.clone(),
                    line: line_number,
                    what,
                    source,
                }));
            }
        }
    }
}

/// Reads every complete line of the file at `path` as a record of kind `what`.
///
/// # Errors
/// The file cannot be read, or a complete line is not a record.
pub fn read_lines<T: DeserializeOwned>(path: &Path, what: &'static str) -> Result<Vec<T>, LineError> {
    Lines::open(path, what)?.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

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
