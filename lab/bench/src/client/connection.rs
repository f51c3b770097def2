//! A non-blocking connection: buffers what cannot be written yet, and matches answers with requests in order.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::PollFlags;

use super::{Address, ClientError, Protocol};

/// Timeout for the server to store the value.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes per read.
const BUFFER: usize = 16 * 1024;

/// A stream to a server; non-blocking after the set-up.
#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Connects and stores the value.
    pub(super) fn open(address: &Address, protocol: Protocol) -> Result<Self, ClientError> {
        let failed = |operation| move |source| ClientError::Socket { operation, source };
        let socket = Self::connect(address).map_err(failed("connect"))?;
        let mut stored = vec![0; protocol.stored().len()];
        let mut stream = &socket;
        stream.write_all(protocol.set()).map_err(failed("store a value"))?;
        stream.read_exact(&mut stored).map_err(failed("store a value"))?;
        if stored != protocol.stored() {
            return Err(wrong(protocol.stored(), &stored));
        }
        match &socket {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
        .map_err(failed("make a socket non-blocking"))?;
        Ok(socket)
    }

    fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Ok(Self::Unix(stream))
            }
            Address::Port(port) => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                // Send each request as soon as it is due, even while others are outstanding.
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&*stream).read(into),
            Socket::Tcp(stream) => (&*stream).read(into),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&*stream).write(from),
            Socket::Tcp(stream) => (&*stream).write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An unanswered request. Times are in ns since the start of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) due: u64,
    pub(super) sent: u64,
}

/// A socket with its data in flight.
#[derive(Debug)]
pub(super) struct Connection<'a, S: ?Sized = Socket> {
    stream: &'a S,
    protocol: Protocol,
    /// In the order of their answers.
    outstanding: VecDeque<Request>,
    /// Bytes not yet accepted by the kernel.
    unsent: Vec<u8>,
    /// How much of the next answer has arrived.
    matched: usize,
    buffer: Box<[u8]>,
}

impl<'a, S: ?Sized> Connection<'a, S>
where
    &'a S: Read + Write,
{
    pub(super) fn new(stream: &'a S, protocol: Protocol) -> Self {
        Self {
            stream,
            protocol,
            outstanding: VecDeque::new(),
            unsent: Vec::new(),
            matched: 0,
            buffer: vec![0; BUFFER].into(),
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Events to wait for.
    pub(super) fn events(&self) -> PollFlags {
        let write = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
        PollFlags::POLLIN | write
    }

    /// Queues a request for the next [`Self::flush`].
    pub(super) fn push(&mut self, due: u64, sent: u64) {
        self.unsent.extend_from_slice(self.protocol.request());
        self.outstanding.push_back(Request { due, sent });
    }

    /// Writes as much as the kernel accepts.
    pub(super) fn flush(&mut self) -> Result<(), ClientError> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(ClientError::Socket { operation: "send a request", source }),
            }
        }
        Ok(())
    }

    /// Reads once; returns the requests that are now answered, and when.
    pub(super) fn receive(&mut self, now: impl Fn() -> u64) -> Result<(Vec<Request>, u64), ClientError> {
        let n = match self.stream.read(&mut self.buffer) {
            Ok(0) => return Err(ClientError::Closed),
            Ok(n) => n,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(source) => return Err(ClientError::Socket { operation: "receive an answer", source }),
        };
        let (at, expected) = (now(), self.protocol.answer());
        let mut answered = Vec::new();
        let mut rest = &self.buffer[..n];
        while !rest.is_empty() {
            let part = &expected[self.matched..];
            let (found, after) = rest.split_at(rest.len().min(part.len()));
            if !part.starts_with(found) {
                return Err(wrong(part, rest));
            }
            self.matched += found.len();
            if self.matched == expected.len() {
                self.matched = 0;
                answered.push(self.outstanding.pop_front().ok_or_else(|| wrong(b"", rest))?);
            }
            rest = after;
        }
        Ok((answered, at))
    }
}

fn wrong(expected: &[u8], found: &[u8]) -> ClientError {
    let text = |bytes: &[u8]| bytes[..bytes.len().min(80)].escape_ascii().to_string();
    ClientError::Wrong { expected: text(expected), found: text(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: Protocol = Protocol::Redis;

    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    #[test]
    fn answers_in_pieces_belong_to_the_requests_in_order() {
        let (ours, mut theirs) = pair();
        let mut connection = Connection::new(&ours, REDIS);
        (1..=3).for_each(|i| connection.push(i, 10 * i));
        connection.flush().unwrap();
        let answers = REDIS.answer().repeat(3);
        let (first, second) = answers.split_at(REDIS.answer().len() + 4);
        theirs.write_all(first).unwrap();
        assert_eq!(connection.receive(|| 99).unwrap(), (vec![Request { due: 1, sent: 10 }], 99));
        assert_eq!(connection.receive(|| 100).unwrap(), (vec![], 100), "nothing to read is no error");
        theirs.write_all(second).unwrap();
        assert_eq!(connection.receive(|| 101).unwrap().0.len(), 2);
        assert!(!connection.is_waiting());
    }

    #[test]
    fn a_wrong_answer_is_quoted() {
        let (ours, mut theirs) = pair();
        let mut connection = Connection::new(&ours, REDIS);
        connection.push(1, 1);
        theirs.write_all(b"-ERR max number of clients reached\r\n").unwrap();
        let error = connection.receive(|| 2).unwrap_err().to_string();
        assert!(error.contains("-ERR max number of clients reached") && error.contains("$3"), "{error}");
        // An answer without a request.
        let (ours, mut theirs) = pair();
        theirs.write_all(REDIS.answer()).unwrap();
        assert!(matches!(Connection::new(&ours, REDIS).receive(|| 2), Err(ClientError::Wrong { .. })));
    }

    #[test]
    fn what_the_kernel_does_not_take_is_kept() {
        let (ours, mut theirs) = pair();
        let mut connection = Connection::new(&ours, REDIS);
        let requests = 40_000;
        (0..requests).for_each(|_| connection.push(1, 1));
        connection.flush().unwrap();
        assert!(connection.events().contains(PollFlags::POLLOUT), "a socket holds less than a megabyte");
        let mut received = vec![0; REDIS.request().len() * requests];
        let mut filled = 0;
        while filled < received.len() {
            filled += theirs.read(&mut received[filled..]).unwrap();
            connection.flush().unwrap();
        }
        assert_eq!(connection.events(), PollFlags::POLLIN);
        assert_eq!(received, REDIS.request().repeat(requests));
    }

    #[test]
    fn an_ended_server_is_noticed() {
        let (ours, theirs) = pair();
        drop(theirs);
        assert!(matches!(Connection::new(&ours, REDIS).receive(|| 1), Err(ClientError::Closed)));
    }
}
