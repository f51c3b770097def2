//! What `auto` decided, one JSON object per line, so that it can be asked later why KVM polls as it does.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_explain::utc;
use gleaner_proto::{LineError, Lines};
use serde::{Deserialize, Serialize};

use super::{Decision, STATE_DIR};

/// The version that is written and read.
pub const VERSION: u32 = 1;
/// A longer journal, in bytes, is shortened to half of that: `/run` is memory.
const LONGEST: usize = 1 << 20;

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
    /// The last line. Missing if the process goes on, or was killed.
    End {
        /// Since the start.
        at: Duration,
        /// Why it ended before it was asked to, if it did.
        failure: Option<String>,
        /// What could not be put back.
        left_behind: Vec<String>,
    },
}

/// A journal that is written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    start: Record,
    longest: usize,
    /// In bytes.
    length: usize,
}

impl Journal {
    /// Replaces the journal at `path` by one that begins with `start`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, start: Record) -> io::Result<Self> {
        let file = File::create(path)?;
        let mut journal = Self { path: path.to_owned(), file, start, longest: LONGEST, length: 0 };
        let first = line(&journal.start)?;
        journal.append(&first)?;
        Ok(journal)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let line = line(record)?;
        if self.length + line.len() > self.longest {
            self.shorten()?;
        }
        self.append(&line)
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.length += line.len();
        self.file.write_all(line)
    }

    /// Keeps the start, and of the rest the latest lines that fit into half of the longest journal.
    fn shorten(&mut self) -> io::Result<()> {
        let text = fs::read(&self.path)?;
        let first = line(&self.start)?;
        let rest = text.get(first.len()..).unwrap_or_default();
        let from = rest.len().saturating_sub(self.longest / 2);
        let latest = rest.get(from..).unwrap_or_default();
        let cut = latest.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let kept = [first.as_slice(), latest.get(cut..).unwrap_or_default()].concat();
        // Whoever reads meanwhile sees the one or the other.
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&kept)?;
        fs::rename(&new, &self.path)?;
        (self.file, self.length) = (file, kept.len());
        Ok(())
    }
}

fn line(record: &Record) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    Ok(line)
}

/// Where `auto` writes it.
pub fn path() -> PathBuf {
    Path::new(STATE_DIR).join("journal")
}

/// The records of the journal at `path`. A last line whose writer was killed is left out.
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
                    "{} UTC: process {pid} begins to decide, with objective {objective}; halt_poll_ns is {found_ns}",
                    utc(*unix_ms)
                )
            }
            Record::Decision(decision) => decision.to_string(),
            Record::End { at, failure, left_behind } => end(*at, failure.as_deref(), left_behind),
        })
        .collect();
    if !matches!(records.last(), Some(Record::End { .. })) {
        sentences.push(if decider == holder {
            "it goes on".to_owned()
        } else {
            "the journal has no end: the process was killed; what it left is put back by `gleaner-host restore`".to_owned()
        });
    }
    sentences
}

fn end(at: Duration, failure: Option<&str>, left_behind: &[String]) -> String {
    let mut sentence = format!("{:.1} s: the end", at.as_secs_f64());
    if let Some(failure) = failure {
        sentence = format!("{sentence}, since {failure}");
    }
    if left_behind.is_empty() {
        sentence + "; what was still ours is put back"
    } else {
        format!("{sentence}; could not be put back: {}", left_behind.join("; "))
    }
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

    fn decision(number: u32) -> Record {
        let at = Duration::from_secs(number.into());
        Record::Decision(Decision { at, before_ns: number, limit_ns: 0, why: Why::GuestsPoll { vcpus: 4 } })
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        fs::write(&path, "an old one\n").unwrap();
        let mut journal = Journal::create(&path, start()).unwrap();
        let failure = Some("the counters cannot be read".to_owned());
        let end = Record::End { at: Duration::from_secs(2), failure, left_behind: Vec::new() };
        journal.write(&decision(1)).unwrap();
        journal.write(&end).unwrap();
        assert_eq!(read(&path).unwrap(), [start(), decision(1), end]);
        // Killed while it wrote.
        fs::write(&path, [line(&start()).unwrap(), b"{\"rec".to_vec()].concat()).unwrap();
        assert_eq!(read(&path).unwrap(), [start()]);
    }

    #[test]
    fn a_long_one_keeps_its_start_and_the_latest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = Journal::create(&path, start()).unwrap();
        journal.longest = 2000;
        for number in 0..200 {
            journal.write(&decision(number)).unwrap();
            let length = fs::metadata(&path).unwrap().len();
            assert!(length <= 2000 && length == journal.length as u64, "{length}");
        }
        let records = read(&path).unwrap();
        assert_eq!(records[0], start());
        let first = 201 - u32::try_from(records.len()).unwrap();
        assert!((180..196).contains(&first), "{first}");
        assert_eq!(records[1..], (first..200).map(decision).collect::<Vec<_>>());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn an_end_differs_from_none() {
        let goes_on = [start(), decision(1)];
        let last = |records: &[Record], holder| sentences(records, holder).pop().unwrap();
        assert!(
            sentences(&goes_on, None)[0].starts_with("1970-01-01 00:00:00 UTC: process 2 begins to decide")
        );
        assert_eq!(last(&goes_on, Some(2)), "it goes on");
        for holder in [None, Some(3)] {
            assert!(last(&goes_on, holder).contains("was killed"), "{holder:?}");
        }
        let at = Duration::from_millis(4500);
        let well = Record::End { at, failure: None, left_behind: Vec::new() };
        assert_eq!(last(&[start(), well], None), "4.5 s: the end; what was still ours is put back");
        let (failure, left_behind) =
            (Some("KVM is gone".to_owned()), vec!["halt_poll_ns: no such file".to_owned()]);
        let badly = last(&[start(), Record::End { at, failure, left_behind }], None);
        assert_eq!(
            badly,
            "4.5 s: the end, since KVM is gone; could not be put back: halt_poll_ns: no such file"
        );
    }

    #[test]
    fn another_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let newer =
            String::from_utf8(line(&start()).unwrap()).unwrap().replace("\"version\":1", "\"version\":9");
        for (text, what) in [("", "version 1"), ("x\n", "line 1"), (newer.as_str(), "version 1")] {
            fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("halt polling journal") && error.contains(what), "{error}");
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        }
    }
}
