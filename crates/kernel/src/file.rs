//! Kernel files that stay open and are read repeatedly.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::{KernelError, Root};

/// An open file of `/proc` or `/sys`: each read starts at offset 0, where the kernel generates the text anew.
///
/// Reading an open file takes one system call; opening by path takes three and a path lookup.
#[derive(Debug)]
pub(crate) struct KernelFile {
    path: PathBuf,
    file: File,
}

impl KernelFile {
    /// Opens `absolute` under `root`.
    pub(crate) fn open(root: &Root, absolute: impl AsRef<Path>) -> Result<Self, KernelError> {
        let path = root.path(absolute);
        match File::open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(KernelError::read(path, source)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the text with one system call. Only for files that return everything in one read: sysfs attributes
    /// (at most a page) and the one-line files of `/proc`.
    pub(crate) fn read_short<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b str, KernelError> {
        let length = self.file.read_at(buffer, 0).map_err(|source| KernelError::read(&self.path, source))?;
        std::str::from_utf8(&buffer[..length])
            .map_err(|_| KernelError::parse(&self.path, "text", "bytes that are not UTF-8"))
    }

    /// Reads the whole text, however long. Grows `buffer` as needed; reuse it for the next read.
    pub(crate) fn read_all<'b>(&self, buffer: &'b mut Vec<u8>) -> Result<&'b str, KernelError> {
        const FIRST: usize = 4096;
        if buffer.len() < FIRST {
            buffer.resize(FIRST, 0);
        }
        let mut length = 0;
        loop {
            if length == buffer.len() {
                buffer.resize(2 * length, 0);
            }
            match self.file.read_at(&mut buffer[length..], length as u64) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(source) => return Err(KernelError::read(&self.path, source)),
            }
        }
        std::str::from_utf8(&buffer[..length])
            .map_err(|_| KernelError::parse(&self.path, "text", "bytes that are not UTF-8"))
    }

    /// The single number in the file.
    pub(crate) fn number(&self) -> Result<u64, KernelError> {
        let mut buffer = [0; 32];
        let text = self.read_short(&mut buffer)?;
        text.trim().parse().map_err(|_| KernelError::parse(&self.path, "a number", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_again_what_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        std::fs::write(root.path("/n"), "41\n").unwrap();
        let file = KernelFile::open(&root, "/n").unwrap();
        assert_eq!(file.number().unwrap(), 41);
        std::fs::write(root.path("/n"), "142\n").unwrap();
        assert_eq!(file.number().unwrap(), 142);
        std::fs::write(root.path("/n"), "many\n").unwrap();
        assert!(file.number().unwrap_err().to_string().contains("found `many`"));
    }

    #[test]
    fn reads_long_files_whole() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let long = "0123456789".repeat(2000);
        std::fs::write(root.path("/long"), &long).unwrap();
        let file = KernelFile::open(&root, "/long").unwrap();
        let mut buffer = Vec::new();
        assert_eq!(file.read_all(&mut buffer).unwrap(), long);
        assert_eq!(file.read_all(&mut buffer).unwrap(), long);
    }
}
