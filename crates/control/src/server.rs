//! The daemon's side: one thread, no waiting. See [`Server::serve`].

mod bind;
mod connection;
mod progress;
mod refusal;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::unistd::Gid;
use serde::Serialize;

use crate::call::WhyReply;
use crate::limits::Bucket;
use crate::{Call, CallId, Error, Limits, Peer, To, peer, wire};
pub use bind::BindError;
use bind::Owned;
use connection::{Connection, InProgress, Progress, Records};
pub use refusal::{Reason, Refusal};

/// epoll's data for the listening socket; connections count from 1.
const LISTENER: u64 = 0;

/// What the daemon has to do.
#[derive(Debug)]
pub enum Event {
    /// A client calls a method that it is allowed to use.
    Call {
        /// Who calls.
        peer: Peer,
        /// What, and where the answer goes.
        call: Call,
    },
    /// The caller of this `Attach` has hung up: end it, and answer all the same, since the caller can have closed its
    /// own side only.
    HungUp(CallId),
    /// A client was refused or disconnected: for the log.
    Refused(Refusal),
}

/// Serves the control socket. Its file is removed on drop, unless it was inherited.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    _owned: Option<Owned>,
    group: Option<Gid>,
    epoll: Epoll,
    limits: Limits,
    connections: Vec<Connection>,
    accepts: Bucket,
    /// Nothing is accepted until then.
    accept_after: Option<Instant>,
    reports: Bucket,
    unreported: u32,
    events: VecDeque<Event>,
    last_key: u64,
    last_call: u64,
}

impl Server {
    /// Listens at `path`, for root and the members of `group`, with file mode 0660. A socket that a dead daemon left is
    /// replaced. Without such a group it is root's alone, and a sentence says so.
    ///
    /// # Errors
    /// Another daemon listens there, something else is in its place, or the kernel refuses.
    pub fn bind(path: &Path, group: Option<&str>) -> Result<(Self, Option<String>), BindError> {
        let (gid, note) = readers(group);
        let (listener, owned) = bind::listen(path, gid)?;
        Ok((Self::new(listener, Some(owned), gid, path)?, note))
    }

    /// Serves a socket that systemd opened, whose file stays systemd's. The sentence is as for [`Self::bind`].
    ///
    /// # Errors
    /// It is not a socket that listens in the file system, or the kernel refuses.
    pub fn inherit(listener: UnixListener, group: Option<&str>) -> Result<(Self, Option<String>), BindError> {
        let (gid, note) = readers(group);
        let io = |source| BindError::Io { what: "use", path: PathBuf::from("of systemd"), source };
        let address = listener.local_addr().map_err(io)?;
        let path = address.as_pathname().unwrap_or(Path::new("of systemd"));
        Ok((Self::new(listener, None, gid, path)?, note))
    }

    fn new(
        listener: UnixListener,
        owned: Option<Owned>,
        group: Option<Gid>,
        path: &Path,
    ) -> Result<Self, BindError> {
        let io = |source| BindError::Io { what: "serve", path: path.to_owned(), source };
        listener.set_nonblocking(true).map_err(io)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|errno| io(errno.into()))?;
        epoll
            .add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))
            .map_err(|errno| io(errno.into()))?;
        let (limits, now) = (Limits::default(), Instant::now());
        Ok(Self {
            listener,
            _owned: owned,
            group,
            epoll,
            limits,
            connections: Vec::new(),
            accepts: Bucket::new(limits.connections_per_s, now),
            accept_after: None,
            reports: Bucket::new(refusal::REPORTS_PER_S, now),
            unreported: 0,
            events: VecDeque::new(),
            last_key: LISTENER,
            last_call: 0,
        })
    }

    /// The same with other limits; for clients that connect from now on.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.accepts = Bucket::new(limits.connections_per_s, Instant::now());
        self.limits = limits;
        self
    }

    /// Whether anybody is connected.
    pub fn has_clients(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Becomes readable when [`Self::serve`] has something to do.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.epoll.0.as_fd()]
    }

    /// When [`Self::serve`] has something to do even if no descriptor becomes readable.
    pub fn due(&self) -> Option<Instant> {
        let now = (!self.events.is_empty()).then(Instant::now);
        let of_clients = self.connections.iter().filter_map(|c| c.due(&self.limits)).min();
        [now, of_clients, self.accept_after].into_iter().flatten().min()
    }

    /// Does everything that can be done without waiting, and returns what the daemon has to do. Call it when a
    /// descriptor is readable or it is due, until it returns `None`.
    pub fn serve(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.progress(Instant::now());
        }
        self.events.pop_front()
    }

    /// Sends the only or last reply of a call; of `Watch`, the next one. Nothing happens if the caller is gone.
    #[expect(clippy::needless_pass_by_value, reason = "a call is answered once")]
    pub fn answer<R: Serialize>(&mut self, to: To<R>, answer: Result<R, Error>) {
        let now = Instant::now();
        let Some((connection, mut call)) = self.take_call(to.id()) else { return };
        let goes_on = match &mut call.progress {
            Progress::Watch { every, due } if answer.is_ok() => {
                *due = Some(now + *every);
                true
            }
            _ => false,
        };
        match answer {
            _ if call.oneway => {}
            Ok(reply) => wire::append_reply(&mut connection.output, &reply, goes_on),
            Err(error) => wire::append(&mut connection.output, &error),
        }
        connection.call = goes_on.then_some(call);
        self.settle(now);
    }

    /// Sends a reply of an `Attach` that goes on. Nothing happens if its caller is gone.
    pub fn push<R: Serialize>(&mut self, to: &To<R>, reply: &R) {
        let Some((connection, call)) = self.take_call(to.id()) else { return };
        if !call.oneway {
            wire::append_reply(&mut connection.output, reply, true);
        }
        connection.call = Some(call);
        self.settle(Instant::now());
    }

    /// Answers `Why` with these records, each taken when the client can read it.
    pub fn answer_records(
        &mut self,
        to: To<WhyReply>,
        records: impl Iterator<Item = WhyReply> + Send + 'static,
    ) {
        let mut rest: Box<dyn Iterator<Item = WhyReply> + Send> = Box::new(records);
        let Some(next) = rest.next() else {
            return self.answer(to, Err(Error::NothingRecorded {}));
        };
        let Some((connection, mut call)) = self.take_call(to.id()) else { return };
        call.progress = Progress::Records(Box::new(Records { next, rest }));
        connection.call = Some(call);
        self.settle(Instant::now());
    }

    /// The call `id`, taken from the connection on which it is in progress.
    fn take_call(&mut self, id: CallId) -> Option<(&mut Connection, InProgress)> {
        let connection = self.connections.iter_mut().find(|connection| connection.is_in_call(id))?;
        let call = connection.call.take()?;
        Some((connection, call))
    }
}

/// The group that is allowed to read, or a sentence that says why there is none.
fn readers(group: Option<&str>) -> (Option<Gid>, Option<String>) {
    match group.map(peer::group) {
        None => (None, None),
        Some(Ok(gid)) => (Some(gid), None),
        Some(Err(sentence)) => (None, Some(sentence)),
    }
}
