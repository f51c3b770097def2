//! An HTTP server for one page, driven by the loop of a daemon: it never blocks, and one client cannot hold up another.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::http::{self, MOST_HEAD_BYTES};

/// With one more, the oldest is disconnected: clients that say nothing do not keep others out. It is also the most
/// responses that can wait to be read.
const MOST_CLIENTS: usize = 8;
/// Within this time a client must have sent its request and read the response.
const LONGEST: Duration = Duration::from_secs(10);
/// What is read, at most, of what follows a request.
const MOST_IGNORED_BYTES: usize = 64 * 1024;
/// How long none is accepted after an error that the next attempt would meet again.
const PAUSE: Duration = Duration::from_secs(1);

/// The listener cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve the metrics' socket without blocking: {0}")]
pub struct ExporterError(io::Error);

impl From<nix::Error> for ExporterError {
    fn from(error: nix::Error) -> Self {
        Self(error.into())
    }
}

/// Serves `GET /metrics`, one request per connection.
#[derive(Debug)]
pub struct Exporter {
    listener: TcpListener,
    /// Readable when there is something to do for the listener or a client.
    ready: Epoll,
    /// The oldest first.
    clients: VecDeque<Client>,
    /// Until then the listener is left alone.
    paused: Option<Instant>,
}

impl Exporter {
    /// Serves a listener, bound by the caller.
    ///
    /// # Errors
    /// If the kernel has no descriptor left to watch it with.
    pub fn new(listener: TcpListener) -> Result<Self, ExporterError> {
        listener.set_nonblocking(true).map_err(ExporterError)?;
        let ready = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        ready.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Self { listener, ready, clients: VecDeque::new(), paused: None })
    }

    /// What to wait for: when one of these is readable, there is something to [`serve`](Self::serve).
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.ready.0.as_fd()]
    }

    /// Does what can be done without waiting; to be called in every turn of the loop, since clients that are too
    /// slow are disconnected here. `metrics` makes an exposition in the OpenMetrics format, once for each request.
    pub fn serve(&mut self, metrics: &mut dyn FnMut() -> String) {
        self.serve_at(Instant::now(), metrics);
    }

    fn serve_at(&mut self, now: Instant, metrics: &mut dyn FnMut() -> String) {
        self.accept(now);
        let ready = &self.ready;
        self.clients.retain_mut(|client| {
            now.saturating_duration_since(client.since) < LONGEST && client.advance(ready, metrics).is_ok()
        });
    }

    fn accept(&mut self, now: Instant) {
        if self.paused.is_some_and(|until| now < until) {
            return;
        }
        if self.paused.take().is_some() {
            self.watch_listener(true);
        }
        // No more than fit: each of them gets an answer to what it has sent already.
        for _ in 0..MOST_CLIENTS {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // One that cannot be watched is disconnected at once.
                    if let Ok(client) = Client::new(stream, now, &self.ready) {
                        self.clients.push_back(client);
                    }
                    if self.clients.len() > MOST_CLIENTS {
                        self.clients.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client's own failures come up here, too.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // Such as no descriptors left: the listener stays readable, and the loop would spin.
                Err(_) => {
                    self.watch_listener(false);
                    self.paused = Some(now + PAUSE);
                    return;
                }
            }
        }
    }

    fn watch_listener(&self, watch: bool) {
        let flags = if watch { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
        // Cannot fail: the listener is registered.
        let _ = self.ready.modify(&self.listener, &mut EpollEvent::new(flags, 0));
    }
}

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    since: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// These bytes of the request have come.
    Request(Vec<u8>),
    /// So many bytes of the response have been sent.
    Response(Vec<u8>, usize),
    /// The response has been sent. The connection is closed when the client has closed its side, since closing it
    /// with bytes unread would take the response from it; so many bytes have been ignored.
    End(usize),
}

impl Client {
    fn new(stream: TcpStream, since: Instant, ready: &Epoll) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        ready.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Self { stream, since, stage: Stage::Request(Vec::new()) })
    }

    /// Goes on until the client makes it wait; an error is the end of the connection.
    fn advance(&mut self, ready: &Epoll, metrics: &mut dyn FnMut() -> String) -> io::Result<()> {
        loop {
            match self.step(metrics) {
                Ok(Some((stage, wait_for))) => {
                    ready.modify(&self.stream, &mut EpollEvent::new(wait_for, 0))?;
                    self.stage = stage;
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// One read or write, and the next stage if it is reached.
    fn step(&mut self, metrics: &mut dyn FnMut() -> String) -> io::Result<Option<(Stage, EpollFlags)>> {
        let mut buffer = [0; 4096];
        match &mut self.stage {
            Stage::Request(received) => {
                let room = (MOST_HEAD_BYTES - received.len()).min(buffer.len());
                let n = some(self.stream.read(&mut buffer[..room])?)?;
                received.extend_from_slice(&buffer[..n]);
                let response = http::respond(received, metrics);
                return Ok(response.map(|bytes| (Stage::Response(bytes, 0), EpollFlags::EPOLLOUT)));
            }
            Stage::Response(bytes, sent) => {
                *sent += some(self.stream.write(&bytes[*sent..])?)?;
                if *sent == bytes.len() {
                    self.stream.shutdown(Shutdown::Write)?;
                    return Ok(Some((Stage::End(0), EpollFlags::EPOLLIN)));
                }
            }
            Stage::End(ignored) => {
                *ignored += some(self.stream.read(&mut buffer)?)?;
                if *ignored > MOST_IGNORED_BYTES {
                    return Err(ErrorKind::InvalidData.into());
                }
            }
        }
        Ok(None)
    }
}

/// No bytes are the end of the connection.
fn some(bytes: usize) -> io::Result<usize> {
    if bytes == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
