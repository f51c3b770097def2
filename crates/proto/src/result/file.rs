//! Result files on disk: written completely or not at all, read only in the known version.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tempfile::NamedTempFile;

use super::{BenchResult, SCHEMA};

/// A result file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The file could not be read.
    #[error("cannot read the result file {}: {source}", path.display())]
    Read {
        /// The file that could not be read.
        path: PathBuf,
        /// The system's error.
        r#source: io::Error,
    },
    /// The file could not be written; an earlier one is unchanged.
    #[error(
        "cannot write {}: {source}; what was there before is untouched; give another place with -o",
        path.display()
    )]
    Write {
        /// The file that could not be written.
        path: PathBuf,
        /// The system's error.
        r#source: io::Error,
    },
    /// Not a result file.
    #[error("{} is not a result file of gleaner bench: {source}", path.display())]
    Malformed {
        /// The file of another format.
        path: PathBuf,
        /// The parser's error.
        r#source: serde_json::Error,
    },
    /// Written by another version of Gleaner.
    #[error(
        "{} has result schema {found}, and this gleaner reads schema {SCHEMA}: read it with the gleaner that wrote \
         it, or measure again",
        path.display()
    )]
    Schema {
        /// The file of another version.
        path: PathBuf,
        /// Schema version of the file.
        found: u64,
    },
}

impl BenchResult {
    /// Reads the result file at `path`.
    ///
    /// # Errors
    /// See [`ResultError`]; the version is checked first.
    pub fn read(path: &Path) -> Result<Self, ResultError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u64,
        }
        let malformed = |source| ResultError::Malformed { path: path.to_owned(), source };
        let bytes = fs::read(path).map_err(|source| ResultError::Read { path: path.to_owned(), source })?;
        let Version { schema: found } = serde_json::from_slice(&bytes).map_err(malformed)?;
        if found != u64::from(SCHEMA) {
            return Err(ResultError::Schema { path: path.to_owned(), found });
        }
        serde_json::from_slice(&bytes).map_err(malformed)
    }

    /// Writes the result file at `path`, completely or not at all.
    ///
    /// # Errors
    /// As [`write_file`].
    pub fn write(&self, path: &Path) -> Result<(), ResultError> {
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|source| ResultError::Write { path: path.to_owned(), source: source.into() })?;
        json.push(b'\n');
        write_file(path, &json)
    }
}

/// Replaces the content of `path` by `bytes`, or leaves it unchanged: through a temporary file in the same
/// directory, and a rename. An existing path that is not a regular file (a device, a pipe) is written to
/// directly.
///
/// # Errors
/// [`ResultError::Write`], e.g. if the disk is full.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ResultError> {
    try_write(path, bytes).map_err(|source| ResultError::Write { path: path.to_owned(), source })
}

/// Checks that [`write_file`] could start to write to `path`, so that a long measurement is not made in vain.
///
/// # Errors
/// As [`write_file`].
pub fn check_place(path: &Path) -> Result<(), ResultError> {
    Destination::find(path).map(drop).map_err(|source| ResultError::Write { path: path.to_owned(), source })
}

fn try_write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match Destination::find(path)? {
        Destination::Device(mut file) => file.write_all(bytes),
        Destination::Beside { mut file, target } => {
            file.write_all(bytes)?;
            // Otherwise a full disk might only be noticed after the rename.
            file.as_file().sync_all()?;
            file.persist(&target).map_err(|error| error.error)?;
            Ok(())
        }
    }
}

/// Where the bytes are written first.
enum Destination {
    /// Directly to the path, which is not a regular file.
    Device(File),
    /// To a temporary file in the target's directory.
    Beside { file: NamedTempFile, target: PathBuf },
}

impl Destination {
    fn find(path: &Path) -> io::Result<Self> {
        // A symbolic link is kept; its target is replaced.
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        let known = fs::metadata(&target).ok();
        if known.as_ref().is_some_and(|known| !known.is_file()) {
            return File::options().write(true).open(&target).map(Self::Device);
        }
        let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // A new file's mode is subject to the umask, as for any other program's output.
        let mode = known.map_or(Permissions::from_mode(0o666), |known| known.permissions());
        let file = tempfile::Builder::new().prefix(".gleaner-").permissions(mode).tempfile_in(dir)?;
        Ok(Self::Beside { file, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Ending, Environment, Plan};

    fn result() -> BenchResult {
        let environment = Environment {
            date: "2026-01-01T00:00:00Z".into(),
            gleaner: "0".into(),
            kernel: "6.1".into(),
            kernel_version: "#1".into(),
            hypervisor: "KVM".into(),
            virtualised: true,
            cpu_model: String::new(),
            vcpus: 2,
            memory_bytes: 1,
            cpuidle_driver: "none".into(),
            cpuidle_governor: "none".into(),
            preemption: "full".into(),
            knobs: [("/sys/x".to_owned(), "0".to_owned())].into(),
        };
        let plan = Plan {
            rounds: 5,
            max_rounds: None,
            precision: None,
            warmup_rounds: 1,
            window_s: 1.0,
            seed: 1,
            order: "shuffled".into(),
        };
        BenchResult {
            schema: SCHEMA,
            title: "t".into(),
            source: String::new(),
            repeat_with: "gleaner bench run x".into(),
            environment,
            plan,
            modes: Vec::new(),
            rows: Vec::new(),
            warnings: Vec::new(),
            failures: Vec::new(),
            ending: Ending::Interrupted,
            earlier: Vec::new(),
        }
    }

    #[test]
    fn a_file_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        result().write(&path).unwrap();
        assert_eq!(BenchResult::read(&path).unwrap(), result());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o600, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn another_schema_is_named_with_both_versions_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        fs::write(&path, r#"{"schema": 99, "what": "ever"}"#).unwrap();
        let error = BenchResult::read(&path).unwrap_err();
        assert!(matches!(error, ResultError::Schema { found: 99, .. }));
        let text = error.to_string();
        assert!(
            text.contains("schema 99") && text.contains("reads schema 1") && text.contains("measure again")
        );
        for text in ["", "[]", r#"{"title": "x"}"#, r#"{"schema": 1}"#] {
            fs::write(&path, text).unwrap();
            assert!(matches!(BenchResult::read(&path), Err(ResultError::Malformed { .. })), "{text}");
        }
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        // A device that is always full is written to, not replaced.
        let full = Path::new("/dev/full");
        let error = result().write(full).unwrap_err().to_string();
        assert!(error.contains("cannot write /dev/full: No space left on device"), "{error}");
        assert!(!fs::metadata(full).unwrap().is_file());
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("no/such/dir.json");
        assert!(result().write(&missing).is_err());
        assert!(check_place(&missing).is_err());
        check_place(&dir.path().join("new.json")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "checking leaves nothing");
    }

    #[test]
    fn a_link_keeps_leading_to_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_file(&link, b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(link.is_symlink());
    }
}
