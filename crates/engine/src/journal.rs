//! Writes the journal: all decisions, and the observations that explain them.

mod shorten;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_policy::{Event, Observation, Setting};
use gleaner_proto::journal::{Names, Record, VERSION};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// A bounded journal keeps observations that decided nothing at least this far apart...
const OBSERVATION_GAP: Duration = Duration::from_millis(100);
/// ...and is shortened when it has this many bytes, since `/run` is memory.
const LONGEST: u64 = 2 << 20;

/// The journal of one run.
#[derive(Debug)]
pub struct Journal {
    out: Option<BufWriter<File>>,
    bound: Option<Bound>,
    /// In bytes.
    length: u64,
    last_observation: Option<Duration>,
    /// Observations not written since then.
    skipped: u32,
    /// Says to the user that the journal ends here, and why.
    warn: fn(&str),
}

/// How long a bounded journal gets before it is shortened.
#[derive(Debug)]
struct Bound {
    path: PathBuf,
    /// In bytes.
    longest: u64,
}

impl Journal {
    /// Creates or replaces the journal at `path`. It is complete, so that it can be replayed, or `bounded` if
    /// the user did not ask for it: then it is shortened whenever it has grown to 2 MiB, and keeps the decisions, with
    /// what they were based on, for longer than other observations. Writing never blocks: a FIFO whose reader is too
    /// slow ends the journal, and `warn` prints a sentence about that.
    ///
    /// # Errors
    /// The file cannot be created, or is a FIFO without a reader.
    pub fn create(path: &Path, bounded: bool, warn: fn(&str)) -> io::Result<Self> {
        let out = Some(BufWriter::new(open(path)?));
        let bound = bounded.then(|| Bound { path: path.to_owned(), longest: LONGEST });
        Ok(Self { out, bound, warn, ..Self::disabled() })
    }

    /// Continues the bounded journal at `path`, if it is whole and its clock started at `start_ms` (milliseconds since
    /// the Unix epoch); `None` otherwise.
    pub fn resume(path: &Path, start_ms: u64, warn: fn(&str)) -> Option<Self> {
        let text = std::fs::read(path).ok().filter(|text| text.ends_with(b"\n"))?;
        let first = text.split(|byte| *byte == b'\n').next()?;
        let Record::Start { version: VERSION, unix_ms, .. } = serde_json::from_slice(first).ok()? else {
            return None;
        };
        let file = OpenOptions::new().append(true).open(path).ok().filter(|_| unix_ms == start_ms)?;
        let length = text.len() as u64;
        let bound = Some(Bound { path: path.to_owned(), longest: LONGEST.max(length) });
        Some(Self { out: Some(BufWriter::new(file)), bound, length, warn, ..Self::disabled() })
    }

    /// Creates or replaces the journal at `path` of a run whose clock stands still meanwhile: writing waits for
    /// a FIFO's reader.
    ///
    /// # Errors
    /// As [`Journal::create`].
    pub fn create_blocking(path: &Path, warn: fn(&str)) -> io::Result<Self> {
        let journal = Self::create(path, false, warn)?;
        if let Some(out) = &journal.out {
            fcntl(out.get_ref(), FcntlArg::F_SETFL(OFlag::empty()))?;
        }
        Ok(journal)
    }

    /// A journal that discards everything.
    pub fn disabled() -> Self {
        Self { out: None, bound: None, length: 0, last_observation: None, skipped: 0, warn: |_| () }
    }

    /// Records one step: the decisions and the observation, which a bounded journal keeps only if it led to a
    /// decision or is due. `names` are those of other workloads that the decisions mention.
    pub fn step(&mut self, in_force: &Setting, o: &Observation, events: &[Event], names: &Names) {
        self.observation(in_force, o, !events.is_empty(), false);
        for event in events {
            self.write(&Record::Decision { at: o.at, event: event.clone(), names: names.clone() });
        }
        if self.skipped == 0 || !events.is_empty() {
            self.flush();
        }
        self.shorten_if_long();
    }

    /// Records the final observation, after which nothing is decided.
    pub fn last_step(&mut self, in_force: &Setting, o: &Observation) {
        self.observation(in_force, o, false, true);
        self.flush();
    }

    fn observation(&mut self, in_force: &Setting, o: &Observation, decided: bool, last: bool) {
        if self.bound.is_some() {
            let due = self.last_observation.is_none_or(|last| o.at.saturating_sub(last) >= OBSERVATION_GAP);
            if !(due || decided || last) {
                self.skipped = self.skipped.saturating_add(1);
                return;
            }
        }
        self.last_observation = Some(o.at);
        let (observation, skipped) = (Box::new(o.clone()), std::mem::take(&mut self.skipped));
        self.write(&Record::Observation { in_force: in_force.clone(), observation, skipped, last });
    }

    /// Records a remark of the engine.
    pub fn note(&mut self, at: Duration, text: impl Into<String>) {
        self.write(&Record::Note { at, text: text.into() });
    }

    /// Writes one record. A journal that fails (a full disk) is given up: the workload matters more.
    pub fn write(&mut self, record: &Record) {
        let Some(out) = &mut self.out else { return };
        let result = serde_json::to_vec(record).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.length += line.len() as u64;
            out.write_all(&line)
        });
        self.end_on_error(result);
    }

    fn shorten_if_long(&mut self) {
        if self.bound.as_ref().is_none_or(|bound| self.length < bound.longest) {
            return;
        }
        self.flush();
        let (Some(bound), Some(out)) = (&mut self.bound, &mut self.out) else { return };
        match shorten::file(&bound.path, LONGEST / 2) {
            Ok((file, length)) => {
                (*out, self.length, bound.longest) = (BufWriter::new(file), length, LONGEST);
            }
            // The long one stays (a full disk): nothing is lost, and that is tried again later.
            Err(_) => bound.longest = bound.longest.saturating_mul(2),
        }
    }

    /// Flushes to the kernel, so that `gleaner why` and `gleaner top` can read it now.
    pub fn flush(&mut self) {
        if let Some(out) = &mut self.out {
            let result = out.flush();
            self.end_on_error(result);
        }
    }

    /// Ends the journal at its first failure, with a message.
    fn end_on_error(&mut self, result: io::Result<()>) {
        let Err(error) = result else { return };
        if error.kind() == ErrorKind::WouldBlock {
            (self.warn)("the journal ends here: its reader is too slow");
        } else {
            (self.warn)(&format!("the journal ends here: {error}"));
        }
        // Flushing the rest would fail again.
        let _ = self.out.take().map(BufWriter::into_parts);
    }
}

/// Opens the file at `path`, truncated, for writing without blocking.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(libc::O_NONBLOCK);
    options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => {
            io::Error::new(ErrorKind::NotConnected, "nobody reads it: start its reader first")
        }
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::sync::Mutex;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    fn fifo(dir: &Path) -> std::path::PathBuf {
        let path = dir.join("fifo");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        path
    }

    fn start() -> Record {
        Record::Start {
            version: VERSION,
            unix_ms: 1,
            workload: "x".to_owned(),
            vcpus: gleaner_policy::CpuSet::first(2),
            config: Box::default(),
            limits: Vec::new(),
        }
    }

    #[test]
    fn a_fifo_without_a_reader_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let error = Journal::create(&fifo(dir.path()), false, |_| ()).unwrap_err().to_string();
        assert!(error.contains("nobody reads it"), "{error}");
    }

    #[test]
    fn a_reader_that_does_not_read_ends_the_journal_instead_of_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let mut journal = Journal::create(&path, false, |_| ()).unwrap();
        let text = "x".repeat(1000);
        // A pipe holds 64 KiB.
        for _ in 0..1000 {
            journal.note(Duration::ZERO, text.clone());
            journal.flush();
        }
        assert!(journal.out.is_none());
        let mut start = [0; 18];
        reader.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"{\"record\":\"note\",\"");
    }

    #[test]
    fn a_bounded_journal_stays_short_and_readable_and_its_latest_records_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.journal");
        let mut journal = Journal::create(&path, true, |sentence| panic!("{sentence}")).unwrap();
        journal.write(&start());
        let text = "x".repeat(100_000);
        let mut shortened = 0;
        for n in 0..100 {
            let before = journal.length;
            journal.note(Duration::from_secs(n), text.clone());
            journal.shorten_if_long();
            journal.flush();
            shortened += u32::from(journal.length < before);
            let length = path.metadata().unwrap().len();
            assert_eq!(length, journal.length);
            assert!(length < LONGEST, "{length}");
            let records = gleaner_proto::journal::read(&path).unwrap();
            assert!(matches!(records.last(), Some(Record::Note { at, .. }) if at.as_secs() == n));
        }
        assert!(shortened > 3, "{shortened}");
        // Its place is taken: it goes on as it is.
        std::fs::create_dir(path.with_extension("new")).unwrap();
        (0..30).for_each(|n| journal.note(Duration::from_secs(n), text.clone()));
        journal.shorten_if_long();
        journal.flush();
        assert!(path.metadata().unwrap().len() > LONGEST);
    }

    #[test]
    fn what_the_same_clock_has_begun_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.journal");
        let warn = |sentence: &str| panic!("{sentence}");
        assert!(Journal::resume(&path, 1, warn).is_none(), "there is none");
        let mut journal = Journal::create(&path, true, warn).unwrap();
        journal.write(&start());
        journal.flush();
        assert!(Journal::resume(&path, 2, warn).is_none(), "another clock's");
        let mut journal = Journal::resume(&path, 1, warn).unwrap();
        journal.note(Duration::from_secs(1), "again");
        journal.flush();
        let note = Record::Note { at: Duration::from_secs(1), text: "again".to_owned() };
        assert_eq!(gleaner_proto::journal::read(&path).unwrap(), [start(), note]);
        assert_eq!(journal.length, path.metadata().unwrap().len());
        // A full disk has cut its last line.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"rec").unwrap();
        assert!(Journal::resume(&path, 1, warn).is_none());
    }

    #[test]
    fn a_full_disk_ends_the_journal_even_if_it_is_short() {
        static WARNED: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let warn = |sentence: &str| WARNED.lock().unwrap().push(sentence.to_owned());
        let mut journal = Journal::create(Path::new("/dev/full"), false, warn).unwrap();
        journal.note(Duration::ZERO, "short");
        assert!(journal.out.is_some());
        journal.flush();
        assert!(journal.out.is_none());
        journal.note(Duration::ZERO, "lost");
        journal.flush();
        let warned = WARNED.lock().unwrap();
        assert!(
            warned.len() == 1 && warned[0].contains("the journal ends here: No space left"),
            "{warned:?}"
        );
    }
}
