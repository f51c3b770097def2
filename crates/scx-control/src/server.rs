//! The scheduler's side: one thread, which also waits for the scheduler's end.

mod socket;

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use crate::Call;
use crate::call::reply;
pub use socket::ListenError;
use socket::Socket;

/// More clients at a time end the oldest connection. They are root's.
const MAX_CLIENTS: usize = 16;
/// Bytes of a request.
const MAX_REQUEST: usize = 64 << 10;
/// A client that does not read its answer is disconnected after so long.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers at any number of sockets. Their files are removed on drop.
#[derive(Debug, Default)]
pub struct Server {
    sockets: Vec<Socket>,
    clients: Vec<Client>,
}

impl Server {
    /// Answers at `path`, too, to its owner alone. The directory is made; the socket of a dead process is replaced.
    ///
    /// # Errors
    /// Another process answers there, something else is in its place, or the kernel refuses.
    pub fn listen(&mut self, path: &Path) -> Result<(), ListenError> {
        self.sockets.push(Socket::at(path)?);
        Ok(())
    }

    /// Answers what is asked within `timeout`; returns earlier once something was, and at a signal.
    pub fn serve(&mut self, timeout: Duration, answer: &mut dyn FnMut(Call) -> Result<Value, String>) {
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        let sockets = self.sockets.iter().map(|socket| socket.listener.as_fd());
        let fds = sockets.chain(self.clients.iter().map(|client| client.stream.as_fd()));
        let mut polled: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        if poll(&mut polled, timeout).is_err() {
            // A signal.
            return;
        }
        let ready: Vec<bool> = polled.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        let (sockets, clients) = ready.split_at(self.sockets.len());
        let mut clients = clients.iter();
        self.clients.retain_mut(|client| clients.next() != Some(&true) || client.serve(answer).is_some());
        for (socket, _) in self.sockets.iter().zip(sockets).filter(|(_, ready)| **ready) {
            // Fails if the client has gone meanwhile.
            let Ok((stream, _)) = socket.listener.accept() else { continue };
            if stream.set_write_timeout(Some(WRITE_TIMEOUT)).is_ok() {
                self.clients.push(Client { stream, received: Vec::new() });
            }
        }
        let too_many = self.clients.len().saturating_sub(MAX_CLIENTS);
        self.clients.drain(..too_many);
    }
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    /// What is no whole line yet.
    received: Vec<u8>,
}

impl Client {
    /// Answers what has arrived. `None`: it is gone, or to be disconnected.
    fn serve(&mut self, answer: &mut dyn FnMut(Call) -> Result<Value, String>) -> Option<()> {
        let mut bytes = [0; 4096];
        // Does not wait: something is there.
        let count = match self.stream.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Some(()),
            Ok(count) if count > 0 => count,
            _ => return None,
        };
        self.received.extend(bytes.get(..count)?);
        while let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.received.drain(..=end).collect();
            let answered = Call::parse(&String::from_utf8_lossy(&line)).and_then(&mut *answer);
            self.stream.write_all(reply(answered).as_bytes()).ok()?;
        }
        (self.received.len() <= MAX_REQUEST).then_some(())
    }
}
