//! The user's own progress counter: a number that grows with the work done.

mod command;

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;

use command::Shell;

/// How the counter is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counter {
    /// The first number in a file.
    File(PathBuf),
    /// The first number that a shell command prints.
    Command(String),
}

impl FromStr for Counter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("file:") {
            Some("") => Err("`file:` needs a path after it".to_owned()),
            Some(path) => Ok(Self::File(path.into())),
            None if text.trim().is_empty() => {
                Err("name a command that prints a number, or file:PATH".to_owned())
            }
            None => Ok(Self::Command(text.to_owned())),
        }
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Command(command) => f.write_str(command),
        }
    }
}

impl Counter {
    /// The shortest block of a trial: long compared with one reading.
    pub fn block(&self) -> Duration {
        match self {
            Self::File(_) => Duration::from_millis(20),
            Self::Command(_) => Duration::from_millis(400),
        }
    }
}

impl Counter {
    /// The present value, for a number that is read rarely. A command has a second to answer.
    ///
    /// # Errors
    /// Why there is no number, as a sentence.
    pub fn read_once(&self) -> Result<f64, String> {
        let read = match self {
            Self::File(path) => in_file(path),
            Self::Command(command) => {
                Shell::new(SigSet::empty(), TIME_LIMIT).ask(command, &[]).and_then(|text| number_in(&text))
            }
        };
        read.map_err(|failure| match failure {
            Failure::Passing(reason) | Failure::Unfit(reason) => reason,
            Failure::Interrupted => "interrupted".to_owned(),
        })
    }
}

/// Time for one reading by a command. Slower commands are of no use, since blocks are shorter; this much is for
/// the first start of the program.
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// If the run ends before the first answer, that is reported only if the counter had this much time.
const FIRST_ANSWER_TIME: Duration = Duration::from_millis(200);
/// The most output that is read for one number, in bytes.
const OUTPUT_LIMIT: usize = 64 << 10;
/// Pause after the first of several failures in a row; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Failures in a row after which the user is warned: a server can take a moment before it answers.
const REPORT_AFTER_FAILURES: u32 = 5;
/// Failures in a row, over some 25 seconds, after which the counter is dropped for the rest of the run.
const DROP_AFTER_FAILURES: u32 = 10;
/// A counter that delays the engine counts as this many failures: it is reported at once and tried once more.
const UNFIT_WEIGHT: u32 = 5;

/// Why there is no number.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// Something more urgent came up.
    Interrupted,
    /// It can succeed next time.
    Passing(String),
    /// It does not behave as a counter must.
    Unfit(String),
}

/// Reads a counter at each sample. One that keeps failing is reported once, then dropped.
#[derive(Debug)]
pub(super) struct CounterReader {
    counter: Counter,
    shell: Shell,
    first_pause: Duration,
    slow: Duration,
    /// Failures in a row, weighted.
    failures: u32,
    /// No reading until then.
    retry_at: Option<Instant>,
    /// The latest failure of a counter that has never been read.
    never_read: Option<String>,
    has_been_read: bool,
    reported: bool,
    /// Sentences for the journal.
    notes: Vec<String>,
    /// Prints a sentence for the user at once.
    warn: fn(&str),
}

impl CounterReader {
    /// `mask` is the signal mask of commands.
    pub(super) fn new(counter: Counter, mask: SigSet, warn: fn(&str)) -> Self {
        Self {
            counter,
            shell: Shell::new(mask, TIME_LIMIT),
            first_pause: FIRST_PAUSE,
            slow: FIRST_ANSWER_TIME,
            failures: 0,
            retry_at: None,
            never_read: None,
            has_been_read: false,
            reported: false,
            notes: Vec::new(),
            warn,
        }
    }

    /// The counter's present value, if it can be read. Gives up as soon as one of `urgent` is readable.
    pub(super) fn read(&mut self, urgent: &[BorrowedFd<'_>]) -> Option<f64> {
        if self.is_dropped() || self.retry_at.is_some_and(|at| Instant::now() < at) {
            return None;
        }
        let start = Instant::now();
        let read = match &self.counter {
            Counter::File(path) => in_file(path),
            Counter::Command(command) => self.shell.ask(command, urgent).and_then(|text| number_in(&text)),
        };
        match read {
            Ok(number) => {
                (self.failures, self.retry_at, self.never_read, self.has_been_read) = (0, None, None, true);
                return Some(number);
            }
            Err(Failure::Interrupted) => {
                if !self.has_been_read && start.elapsed() >= self.slow {
                    self.never_read = Some("no answer before the end".to_owned());
                }
            }
            Err(Failure::Passing(reason)) => self.failed(&reason, 1),
            Err(Failure::Unfit(reason)) => self.failed(&reason, UNFIT_WEIGHT),
        }
        None
    }

    /// The counter at the end of the run, if that takes no time. A counter that never worked is reported here
    /// at the latest.
    pub(super) fn read_at_the_end(&mut self) -> Option<f64> {
        let number = match self.counter {
            Counter::File(_) => self.read(&[]),
            Counter::Command(_) => None,
        };
        if let Some(reason) = self.never_read.take() {
            self.report(format!("cannot read the progress counter `{}`: {reason}", self.counter));
        }
        number
    }

    /// Takes the sentences for the journal.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn is_dropped(&self) -> bool {
        self.failures >= DROP_AFTER_FAILURES
    }

    fn failed(&mut self, reason: &str, weight: u32) {
        self.failures += weight;
        self.retry_at =
            Some(Instant::now() + self.first_pause * (1 << (self.failures - 1).min(DROP_AFTER_FAILURES)));
        let what = format!("cannot read the progress counter `{}`: {reason}", self.counter);
        if self.failures >= REPORT_AFTER_FAILURES {
            self.report(format!("{what}; until it can be read, other signals are used"));
        }
        if self.is_dropped() {
            self.notes.push(format!("{what}; it is not read any more"));
        }
        self.never_read = (!self.has_been_read).then(|| reason.to_owned());
    }

    /// Reports to the user and the journal, once.
    fn report(&mut self, text: String) {
        if !std::mem::replace(&mut self.reported, true) {
            (self.warn)(&text);
            self.notes.push(text);
        }
    }
}

/// The first number in the file `path`, which must not block.
fn in_file(path: &Path) -> Result<f64, Failure> {
    let passing = |error: std::io::Error| Failure::Passing(error.to_string());
    if fs::metadata(path).map_err(passing)?.file_type().is_fifo() {
        return Err(Failure::Unfit("a FIFO cannot be read again and again: name a regular file".to_owned()));
    }
    let mut open = OpenOptions::new();
    let file = open.read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(passing)?;
    let mut text = Vec::new();
    file.take(OUTPUT_LIMIT as u64).read_to_end(&mut text).map_err(passing)?;
    number_in(&text)
}

/// The first number in `text`.
fn number_in(text: &[u8]) -> Result<f64, Failure> {
    let text = String::from_utf8_lossy(text);
    first_number(&text).ok_or_else(|| Failure::Passing(format!("no number in `{}`", first_line(&text))))
}

fn first_number(text: &str) -> Option<f64> {
    text.split(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E')))
        .find_map(|word| word.parse().ok().filter(|n: &f64| n.is_finite()))
}

/// The first line of `text`, shortened for messages, without control characters.
fn first_line(text: &str) -> String {
    const LENGTH: usize = 100;
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(LENGTH).collect()
}

#[cfg(test)]
mod tests;
