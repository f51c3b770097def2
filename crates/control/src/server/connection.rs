//! One client: what it has sent, what it is still to be sent, and the call in progress.

use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;

use crate::call::WhyReply;
use crate::limits::Bucket;
use crate::{CallId, Limits, Peer};

/// The records that are still to be sent.
pub(super) struct Records {
    pub(super) next: WhyReply,
    pub(super) rest: Box<dyn Iterator<Item = WhyReply> + Send>,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("next", &self.next).finish_non_exhaustive()
    }
}

/// What a call in progress waits for.
#[derive(Debug)]
pub(super) enum Progress {
    /// For the daemon's answer.
    Answer,
    /// For the daemon's answer; meanwhile it can push replies, and is to know once if the caller hangs up.
    Attached { hung_up: bool },
    /// For the client to read more.
    Records(Box<Records>),
    /// `Watch`: for the next sample, due at this time, or, if `None`, for the daemon's answer.
    Watch { every: Duration, due: Option<Instant> },
}

#[derive(Debug)]
pub(super) struct InProgress {
    pub(super) id: CallId,
    pub(super) oneway: bool,
    pub(super) progress: Progress,
}

/// What reading from a client showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// It may send more.
    Open,
    /// It will send nothing more, but can still read.
    End,
    /// It is gone.
    Broken,
    /// Its message is too long.
    TooLong,
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    /// Identifies it to epoll.
    pub(super) key: u64,
    pub(super) peer: Peer,
    input: Vec<u8>,
    /// Where the first message in `input` ends, if it is complete.
    message_end: Option<usize>,
    /// Since when the first message in `input` is incomplete.
    incomplete_since: Option<Instant>,
    pub(super) end_of_input: bool,
    pub(super) output: Vec<u8>,
    /// Since when nothing of the output was read.
    stalled_since: Option<Instant>,
    pub(super) bucket: Bucket,
    pub(super) call: Option<InProgress>,
    /// When it last sent something, or was sent something.
    pub(super) active_at: Instant,
    /// To be removed.
    pub(super) closed: bool,
    /// The readiness that epoll waits for.
    pub(super) interest: EpollFlags,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    pub(super) fn new(stream: UnixStream, key: u64, peer: Peer, limits: &Limits, now: Instant) -> Self {
        Self {
            stream,
            key,
            peer,
            input: Vec::new(),
            message_end: None,
            incomplete_since: None,
            end_of_input: false,
            output: Vec::new(),
            stalled_since: None,
            bucket: Bucket::new(limits.requests_per_s, now),
            call: None,
            active_at: now,
            closed: false,
            interest: EpollFlags::EPOLLIN,
        }
    }

    /// Reads what is there, until a message of at most `most` bytes is complete.
    pub(super) fn read(&mut self, most: usize, now: Instant) -> Input {
        let mut chunk = [0; 16 << 10];
        while self.message_end.is_none() && self.input.len() <= most {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    self.end_of_input = true;
                    return Input::End;
                }
                Ok(n) => {
                    self.active_at = now;
                    self.append(&chunk[..n], now);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Input::Open,
                Err(_) => return Input::Broken,
            }
        }
        let fits = self.message_end.unwrap_or(self.input.len()) <= most;
        if fits { Input::Open } else { Input::TooLong }
    }

    fn append(&mut self, bytes: &[u8], now: Instant) {
        let before = self.input.len();
        self.input.extend_from_slice(bytes);
        self.message_end = bytes.iter().position(|b| *b == 0).map(|at| before + at);
        self.incomplete_since = match self.message_end {
            None => self.incomplete_since.or(Some(now)),
            Some(_) => None,
        };
    }

    /// Takes the first message, if it is complete.
    pub(super) fn take_message(&mut self, now: Instant) -> Option<Vec<u8>> {
        let end = self.message_end.take()?;
        let rest = self.input.split_off(end + 1);
        let mut message = std::mem::replace(&mut self.input, rest);
        message.truncate(end);
        self.message_end = self.input.iter().position(|b| *b == 0);
        self.incomplete_since = (self.message_end.is_none() && !self.input.is_empty()).then_some(now);
        Some(message)
    }

    /// Writes as much of the output as the client takes.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) fn flush(&mut self, now: Instant) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(n) => {
                    self.output.drain(..n);
                    self.active_at = now;
                    self.stalled_since = None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stalled_since.get_or_insert(now);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether its message has been incomplete for too long.
    pub(super) fn is_incomplete(&self, limits: &Limits, now: Instant) -> bool {
        self.incomplete_since.is_some_and(|since| now >= since + limits.timeout)
    }

    /// Whether it has read nothing of its output for too long.
    pub(super) fn is_slow(&self, limits: &Limits, now: Instant) -> bool {
        self.stalled_since.is_some_and(|since| now >= since + limits.timeout)
    }

    /// When there is something to do for it, whether or not it sends or reads anything.
    pub(super) fn due(&self, limits: &Limits) -> Option<Instant> {
        let timeout = self.incomplete_since.into_iter().chain(self.stalled_since).min();
        let next = match &self.call {
            None if self.can_be_served(limits) => Some(self.bucket.ready_at()),
            Some(InProgress { progress: Progress::Watch { due, .. }, .. }) if self.output.is_empty() => *due,
            _ => None,
        };
        timeout.map(|since| since + limits.timeout).into_iter().chain(next).min()
    }

    /// Whether its next message can be served, once it has a token for it.
    pub(super) fn can_be_served(&self, limits: &Limits) -> bool {
        self.call.is_none() && self.message_end.is_some() && self.output.len() < limits.backlog
    }

    /// Whether nothing is left to do for what it has sent; the start of another message does not count.
    pub(super) fn is_done(&self) -> bool {
        self.call.is_none() && self.message_end.is_none() && self.output.is_empty()
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.call.is_none() && self.input.is_empty() && self.output.is_empty()
    }

    /// Whether the call `id` is in progress here.
    pub(super) fn is_in_call(&self, id: CallId) -> bool {
        self.call.as_ref().is_some_and(|call| call.id == id)
    }

    /// The readiness that it waits for now.
    pub(super) fn wanted(&self) -> EpollFlags {
        let records = matches!(&self.call, Some(InProgress { progress: Progress::Records(_), .. }));
        let mut wanted = EpollFlags::empty();
        wanted.set(EpollFlags::EPOLLIN, !self.end_of_input && self.message_end.is_none());
        wanted.set(EpollFlags::EPOLLOUT, records || !self.output.is_empty());
        wanted
    }
}
