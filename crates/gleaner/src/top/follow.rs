//! Follows a journal while it is being written, and notices when another one replaces it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use gleaner_proto::LineError;
use gleaner_proto::journal::{Record, VERSION};

use super::run::Run;

/// A journal starts with its version and start time in milliseconds, which identify it.
const HEAD_BYTES: usize = 80;

#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    head: Vec<u8>,
    offset: u64,
    line: usize,
    run: Option<Run>,
    /// Why the file cannot be read, or not any further.
    problem: Option<String>,
    /// A line was malformed: the rest of this file is not read.
    failed: bool,
}

impl Follower {
    /// Follows the journal at `path`, which need not exist yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, head: Vec::new(), offset: 0, line: 0, run: None, problem: None, failed: false }
    }

    /// The run in the journal; `None` while there is no journal.
    pub(super) fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// Why the journal cannot be read, or not any further.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Reads new records. Stops at a line that is not a record, until another journal replaces the file.
    pub(super) fn update(&mut self) {
        match self.read() {
            Ok(()) if self.failed => {}
            Ok(()) => self.problem = None,
            Err(error) => self.problem = Some(error.to_string()),
        }
    }

    fn read(&mut self) -> Result<(), LineError> {
        match self.read_appended() {
            Ok(Some(bytes)) => self.take(&bytes),
            Ok(None) => {
                *self = Self::new(std::mem::take(&mut self.path));
                Ok(())
            }
            Err(source) => Err(LineError::Read { path: self.path.clone(), source }),
        }
    }

    /// The complete lines since the last call; `None` if there is no file.
    fn read_appended(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut head = Vec::new();
        (&file).take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        if file.metadata()?.len() < self.offset || !head.starts_with(&self.head) {
            *self = Self::new(std::mem::take(&mut self.path));
        }
        if self.failed {
            return Ok(Some(Vec::new()));
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // A line without an end is still being written.
        bytes.truncate(bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1));
        if !bytes.is_empty() {
            self.offset += bytes.len() as u64;
            self.head = head;
        }
        Ok(Some(bytes))
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), LineError> {
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            self.line += 1;
            let record = serde_json::from_slice::<Record>(line);
            let result = match (record, &mut self.run) {
                (Ok(record), Some(run)) => {
                    run.update(record);
                    Ok(())
                }
                (Ok(record), None) => {
                    self.run = Run::start(record);
                    let version =
                        || LineError::Version { path: self.path.clone(), what: "journal", version: VERSION };
                    self.run.is_some().then_some(()).ok_or_else(version)
                }
                (Err(source), _) => Err(LineError::Malformed {
                    path: self.path.clone(),
                    line: self.line,
                    what: "journal",
                    source,
                }),
            };
            if result.is_err() {
                self.failed = true;
                return result;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;
    use std::time::Duration;

    use gleaner_policy::{CpuSet, PolicyConfig};

    use super::*;

    fn line(record: &Record) -> String {
        serde_json::to_string(record).unwrap() + "\n"
    }

    fn start(unix_ms: u64) -> String {
        line(&Record::Start {
            version: VERSION,
            unix_ms,
            workload: format!("run {unix_ms}"),
            vcpus: CpuSet::first(2),
            config: Box::new(PolicyConfig::default()),
            limits: Vec::new(),
        })
    }

    fn note(ms: u64) -> String {
        line(&Record::Note { at: Duration::from_millis(ms), text: "a note".to_owned() })
    }

    fn decisions(follower: &Follower) -> usize {
        follower.run().map_or(0, |run| run.decisions().len())
    }

    #[test]
    fn follows_what_is_appended_and_waits_for_the_end_of_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut follower = Follower::new(path.clone());
        follower.update();
        assert!(follower.run().is_none(), "there is no journal yet");
        let whole = note(2);
        let (first, second) = whole.split_at(10);
        fs::write(&path, start(1) + &note(1) + first).unwrap();
        follower.update();
        assert_eq!(decisions(&follower), 1);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(second.as_bytes()).unwrap();
        follower.update();
        follower.update();
        assert_eq!(decisions(&follower), 2);
    }

    #[test]
    fn notices_another_journal_in_the_place_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut follower = Follower::new(path.clone());
        fs::write(&path, start(1) + &note(1)).unwrap();
        follower.update();
        // Longer than the first, as if it had grown.
        fs::write(&path, start(2) + &note(1) + &note(2) + &note(3)).unwrap();
        follower.update();
        assert_eq!(follower.run().unwrap().workload, "run 2");
        assert_eq!(decisions(&follower), 3);
        fs::write(&path, start(3)).unwrap();
        follower.update();
        assert_eq!((follower.run().unwrap().workload.as_str(), decisions(&follower)), ("run 3", 0));
        fs::remove_file(&path).unwrap();
        follower.update();
        assert!(follower.run().is_none());
    }

    #[test]
    fn names_the_line_that_is_no_record_and_recovers_with_the_next_journal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut follower = Follower::new(path.clone());
        fs::write(&path, start(1) + "nonsense\n" + &note(1)).unwrap();
        for _ in 0..2 {
            follower.update();
            let problem = follower.problem().unwrap();
            assert!(problem.contains("line 2 is not a journal record"), "{problem}");
        }
        assert_eq!(decisions(&follower), 0);
        fs::write(&path, start(2) + &note(1)).unwrap();
        follower.update();
        assert_eq!((decisions(&follower), follower.problem()), (1, None));
        fs::write(&path, start(3).replace("\"version\":3", "\"version\":9")).unwrap();
        follower.update();
        assert!(follower.problem().unwrap().contains("not a journal file of version 3"));
    }
}
