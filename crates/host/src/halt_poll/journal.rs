//! What `auto` decided, one JSON object per line, so that it can be asked later why KVM polls as it does.

use std::collections::VecDeque;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_explain::utc;
use gleaner_proto::{LineError, Lines};
use serde::{Deserialize, Serialize};

use super::{Decision, STATE_DIR};

/// The version that is written and read.
pub const VERSION: u32 = 1;
/// So many records are kept after the first one: `/run` is memory. Where nothing changes these are the decisions of about a day.
const KEPT: usize = 500;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// The first line.
    Start {
        /// Of the format.
        version: u32,
        /// When, in milliseconds since the Unix epoch.
        unix_ms: u64,
        /// The process that decides.
        pid: u32,
        /// What polling may cost, as on the command line.
        objective: String,
        /// `halt_poll_ns` as it was found.
        found_ns: u32,
    },
    /// What was decided.
    Decision(Decision),
    /// The last line. Missing as long as the process runs, and if it was killed.
    End {
        /// Since the start.
        at: Duration,
        /// Why it ended before it was asked to, if it did.
        failure: Option<String>,
        /// What could not be put back.
        left_behind: Vec<String>,
    },
}

/// A journal that is written. There is a whole one at its path at every moment.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    start: Record,
    latest: VecDeque<Record>,
}

impl Journal {
    /// Replaces the journal at `path` by one that begins with `start`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, start: Record) -> io::Result<Self> {
        let journal = Self { path: path.to_owned(), start, latest: VecDeque::new() };
        journal.save()?;
        Ok(journal)
    }

    /// Adds a record, unless another process has begun a journal in place of this one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, record: Record) -> io::Result<()> {
        let first = read(&self.path).ok().and_then(|records| records.into_iter().next());
        if first.is_some_and(|first| first != self.start) {
            return Ok(());
        }
        self.latest.push_back(record);
        if self.latest.len() > KEPT {
            self.latest.pop_front();
        }
        self.save()
    }

    fn save(&self) -> io::Result<()> {
        let mut text = Vec::new();
        for record in std::iter::once(&self.start).chain(&self.latest) {
            serde_json::to_writer(&mut text, record)?;
            text.push(b'\n');
        }
        let new = self.path.with_extension("new");
        let written = fs::write(&new, text)
            // Independent of the umask: everybody may ask why.
            .and_then(|()| fs::set_permissions(&new, Permissions::from_mode(0o644)))
            .and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            // It would take the space that is missing.
            let _ = fs::remove_file(&new);
        }
        written
    }
}

/// Where `auto` writes it.
pub fn path() -> PathBuf {
    Path::new(STATE_DIR).join("journal")
}

/// The records of the journal at `path`.
///
/// # Errors
/// It cannot be read, or is no journal of this version.
pub fn read(path: &Path) -> Result<Vec<Record>, LineError> {
    const WHAT: &str = "halt polling journal";
    let records = Lines::open(path, WHAT)?.collect::<Result<Vec<Record>, LineError>>()?;
    match records.first() {
        Some(Record::Start { version: VERSION, .. }) => Ok(records),
        _ => Err(LineError::Version { path: path.to_owned(), what: WHAT, version: VERSION }),
    }
}

/// The journal as sentences; `holder` is the process that holds KVM's halt polling now.
pub fn sentences(records: &[Record], holder: Option<u32>) -> Vec<String> {
    let mut decider = None;
    let mut sentences: Vec<String> = records
        .iter()
        .map(|record| match record {
            Record::Start { unix_ms, pid, objective, found_ns, .. } => {
                decider = Some(*pid);
                format!(
                    "{} UTC: process {pid} starts deciding (objective {objective}); halt_poll_ns is {found_ns}",
                    utc(*unix_ms)
                )
            }
            Record::Decision(decision) => decision.to_string(),
            Record::End { at, failure, left_behind } => end(*at, failure.as_deref(), left_behind),
        })
        .collect();
    if !matches!(records.last(), Some(Record::End { .. })) {
        sentences.push(if decider == holder {
            "it is still running".to_owned()
        } else {
            "the journal stops here: the process was killed, or could not write any more; `gleaner-host restore` puts back \
             what it left, if anything"
                .to_owned()
        });
    }
    sentences
}

fn end(at: Duration, failure: Option<&str>, left_behind: &[String]) -> String {
    let why = failure.map(|failure| format!(" because {failure}")).unwrap_or_default();
    let put_back = if left_behind.is_empty() {
        "everything still held was put back".to_owned()
    } else {
        format!("could not be put back: {}", left_behind.join("; "))
    };
    format!("{:.1} s: ended{why}; {put_back}", at.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::halt_poll::Why;

    fn start() -> Record {
        Record::Start {
            version: VERSION,
            unix_ms: 1,
            pid: 2,
            objective: "balanced".to_owned(),
            found_ns: 200_000,
        }
    }

    fn decision(number: usize) -> Record {
        let at = Duration::from_secs(number as u64);
        let why = Why::GuestsPoll { vcpus: 4 };
        Record::Decision(Decision { at, before_ns: 50_000, limit_ns: 0, why })
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        fs::write(&path, "an old one\n").unwrap();
        let mut journal = Journal::create(&path, start()).unwrap();
        let failure = Some("the counters cannot be read".to_owned());
        let end = Record::End { at: Duration::from_secs(2), failure, left_behind: Vec::new() };
        journal.write(decision(1)).unwrap();
        assert_eq!(read(&path).unwrap(), [start(), decision(1)]);
        journal.write(end.clone()).unwrap();
        assert_eq!(read(&path).unwrap(), [start(), decision(1), end]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn a_long_one_keeps_its_start_and_the_latest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = Journal::create(&path, start()).unwrap();
        for number in 0..KEPT + 3 {
            journal.write(decision(number)).unwrap();
        }
        let records = read(&path).unwrap();
        assert_eq!((records.len(), &records[0]), (1 + KEPT, &start()));
        assert_eq!((&records[1], &records[KEPT]), (&decision(3), &decision(KEPT + 2)));
    }

    #[test]
    fn another_process_journal_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut first = Journal::create(&path, start()).unwrap();
        let mut other = start();
        if let Record::Start { pid, .. } = &mut other {
            *pid = 3;
        }
        Journal::create(&path, other.clone()).unwrap();
        first.write(decision(1)).unwrap();
        assert_eq!(read(&path).unwrap(), [other]);
    }

    #[test]
    fn an_end_differs_from_none() {
        let no_end = [start(), decision(1)];
        let last = |records: &[Record], holder| sentences(records, holder).pop().unwrap();
        assert!(
            sentences(&no_end, None)[0].starts_with("1970-01-01 00:00:00 UTC: process 2 starts deciding")
        );
        assert_eq!(last(&no_end, Some(2)), "it is still running");
        for holder in [None, Some(3)] {
            assert!(last(&no_end, holder).contains("was killed"), "{holder:?}");
        }
        let at = Duration::from_millis(4500);
        let well = Record::End { at, failure: None, left_behind: Vec::new() };
        assert_eq!(last(&[start(), well], None), "4.5 s: ended; everything still held was put back");
        let (failure, left_behind) =
            (Some("KVM is gone".to_owned()), vec!["halt_poll_ns: no such file".to_owned()]);
        let badly = last(&[start(), Record::End { at, failure, left_behind }], None);
        assert_eq!(
            badly,
            "4.5 s: ended because KVM is gone; could not be put back: halt_poll_ns: no such file"
        );
    }

    #[test]
    fn another_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let newer = serde_json::to_string(&start()).unwrap().replace("\"version\":1", "\"version\":9") + "\n";
        for (text, what) in [("", "version 1"), ("x\n", "line 1"), (newer.as_str(), "version 1")] {
            fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("halt polling journal") && error.contains(what), "{error}");
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        }
    }
}
