//! The root of all kernel paths: `/`, or a fake tree in tests.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::KernelError;

/// Most kernel files are shorter.
const PAGE: usize = 4096;

/// A path prefix for `/proc`, `/sys` and `/dev`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    prefix: PathBuf,
}

impl Root {
    /// The running system.
    pub fn system() -> Self {
        Self { prefix: PathBuf::from("/") }
    }

    /// A tree under `dir` with the layout of `/`, for tests.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { prefix: dir.into() }
    }

    /// Whether this is the running system, the only one that system calls (affinity, CPUID, `uname`) refer to.
    pub fn is_system(&self) -> bool {
        self.prefix == Path::new("/")
    }

    /// The path of `absolute` (e.g. `/proc/stat`) under this root.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.prefix.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// The file's text without surrounding white space.
    pub fn read(&self, absolute: impl AsRef<Path>) -> Result<String, KernelError> {
        let path = self.path(absolute);
        match read_page(&path) {
            // Names in /proc (of processes, for one) need not be UTF-8; numbers always are.
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Err(source) => Err(KernelError::read(path, source)),
        }
    }

    /// Like [`Root::read`], but `None` if the file does not exist (`ENOENT`).
    pub fn read_opt(&self, absolute: impl AsRef<Path>) -> Result<Option<String>, KernelError> {
        match self.read(absolute) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The file's text as a value; `what` names the expected value in an error.
    pub fn parse<T: FromStr>(
        &self,
        absolute: impl AsRef<Path>,
        what: &'static str,
    ) -> Result<T, KernelError> {
        let absolute = absolute.as_ref();
        let text = self.read(absolute)?;
        text.parse().map_err(|_| KernelError::parse(self.path(absolute), what, &text))
    }

    /// Writes `value` in one `write` call, as kernel files require; the file must exist.
    ///
    /// The empty string is written as a newline: a write of zero bytes never reaches the kernel file's handler.
    pub fn write(&self, absolute: impl AsRef<Path>, value: &str) -> Result<(), KernelError> {
        let path = self.path(absolute);
        let bytes = if value.is_empty() { b"\n" } else { value.as_bytes() };
        // Kernel files ignore truncation, but a fake tree needs it.
        fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .and_then(|mut file| match file.write(bytes)? {
                written if written == bytes.len() => Ok(()),
                _ => Err(io::Error::from(io::ErrorKind::WriteZero)),
            })
            .map_err(|source| KernelError::write(path, value, source))
    }

    /// The path without links, `.` and `..`, and without the prefix.
    ///
    /// # Errors
    /// It does not exist, is not searchable, or leads out of a fake tree.
    pub fn canonical(&self, absolute: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = fs::canonicalize(self.path(absolute))?;
        let prefix = fs::canonicalize(&self.prefix)?;
        let inside = path.strip_prefix(&prefix).map_err(io::Error::other)?;
        Ok(Path::new("/").join(inside))
    }

    /// Whether the path exists and is searchable.
    pub fn exists(&self, absolute: impl AsRef<Path>) -> bool {
        self.path(absolute).exists()
    }

    /// The names in a directory, sorted, without those that are not UTF-8: the kernel has none.
    pub fn list(&self, absolute: impl AsRef<Path>) -> Result<Vec<String>, KernelError> {
        let path = self.path(absolute);
        let names = fs::read_dir(&path).and_then(|entries| {
            entries
                .map(|entry| entry.map(|e| e.file_name().into_string().ok()))
                .collect::<io::Result<Vec<_>>>()
        });
        let mut names: Vec<String> =
            names.map_err(|source| KernelError::read(path, source))?.into_iter().flatten().collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// As [`fs::read`], for a file whose size the kernel does not know before: `fs::read` asks for it, then starts with 32
/// bytes.
fn read_page(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(PAGE);
    fs::File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lie_under_the_root() {
        assert_eq!(Root::system().path("/proc/stat"), Path::new("/proc/stat"));
        assert_eq!(Root::at("/fake").path("/proc/stat"), Path::new("/fake/proc/stat"));
        assert_eq!(Root::at("/fake").path("proc/stat"), Path::new("/fake/proc/stat"));
        assert!(Root::system().is_system() && !Root::at("/fake").is_system());
    }

    #[test]
    fn reads_trimmed_and_distinguishes_missing_from_unreadable() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::write(root.path("/a"), " 7\n").unwrap();
        assert_eq!(root.read("/a").unwrap(), "7");
        assert_eq!(root.parse::<u32>("/a", "a number").unwrap(), 7);
        assert_eq!(root.read_opt("/missing").unwrap(), None);
        assert!(root.read("/missing").unwrap_err().is_gone());
        assert!(root.read_opt("/").is_err(), "a directory is not a missing file");
        fs::write(root.path("/a"), "seven").unwrap();
        let error = root.parse::<u32>("/a", "a number").unwrap_err().to_string();
        assert!(error.contains("expected a number, found `seven`"), "{error}");
        assert_eq!(root.list("/").unwrap(), ["a"]);
    }

    #[test]
    fn writes_replace_and_empty_is_a_newline() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        assert!(root.write("/a", "1").is_err(), "a kernel file is never created by writing");
        fs::write(root.path("/a"), "long text").unwrap();
        root.write("/a", "1").unwrap();
        assert_eq!(fs::read_to_string(root.path("/a")).unwrap(), "1");
        root.write("/a", "").unwrap();
        assert_eq!(fs::read_to_string(root.path("/a")).unwrap(), "\n");
    }
}
