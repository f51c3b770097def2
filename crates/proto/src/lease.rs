//! The lease file: a holder's changes to the machine, written *before* each change.

use std::path::{Path, PathBuf};

use gleaner_kernel::lever::{Target, Value};
use serde::{Deserialize, Serialize};

use crate::lines::{LineError, read_lines};

/// The version of the format that this crate reads and writes.
pub const VERSION: u32 = 1;

/// One line of the lease file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum LeaseRecord {
    /// The first line: the holder of the leases.
    Holder {
        /// [`VERSION`].
        version: u32,
        /// PID of the holder.
        pid: u32,
    },
    /// The holder is about to write `new` to `target`, which was `old` before the holder's first write.
    Change {
        /// The target of the change.
        target: Target,
        /// The value to restore.
        old: Value,
        /// The value that marks the target as ours.
        new: Value,
    },
    /// The holder restored `target` (or it no longer existed); this closes earlier changes of it.
    Released {
        /// The restored target.
        target: Target,
    },
}

/// Reads the lease file at `path`: the holder's PID and the records after the first.
///
/// # Errors
/// See [`LineError`]; a file with only a torn line counts as empty.
pub fn read(path: &Path) -> Result<Option<(u32, Vec<LeaseRecord>)>, LineError> {
    let mut records = read_lines::<LeaseRecord>(path, "lease")?.into_iter();
    match records.next() {
        None => Ok(None),
        Some(LeaseRecord::Holder { version: VERSION, pid }) => Ok(Some((pid, records.collect()))),
        Some(_) => Err(LineError::Version { path: PathBuf::from(path), what: "lease", version: VERSION }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_defines_and_refuses_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases");
        let change = LeaseRecord::Change {
            target: Target::File("/sys/x".into()),
            old: Value::Text("0".into()),
            new: Value::Text("1".into()),
        };
        let line = |r: &LeaseRecord| serde_json::to_string(r).unwrap() + "\n";
        let holder = |version| line(&LeaseRecord::Holder { version, pid: 7 });
        std::fs::write(&path, holder(VERSION) + &line(&change)).unwrap();
        assert_eq!(read(&path).unwrap(), Some((7, vec![change.clone()])));
        std::fs::write(&path, holder(99)).unwrap();
        assert!(matches!(read(&path), Err(LineError::Version { .. })));
        std::fs::write(&path, line(&change)).unwrap();
        assert!(matches!(read(&path), Err(LineError::Version { .. })), "no holder");
        std::fs::write(&path, "{\"record\":\"hol").unwrap();
        assert_eq!(read(&path).unwrap(), None, "torn in its first line: nothing was changed yet");
    }
}
