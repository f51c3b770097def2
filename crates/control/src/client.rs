//! The clients' side: blocking, with a timeout.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::marker::PhantomData;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::call::WatchRequest;
use crate::{
    AttachReply, AttachRequest, DetachRequest, Error, ForgetReply, ForgetRequest, INTERFACE, MetricsReply,
    Nothing, PauseRequest, ReloadReply, Status, StatusReply, WhyReply, WhyRequest,
};

/// How long the daemon has for an answer: far longer than it needs, since it waits for nobody.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why the daemon could not be asked, or what it refused.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("gleanerd is not running (nobody serves {}): start it with `systemctl start gleanerd`", path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
    },
    /// The caller is not allowed to use the socket.
    #[error("no right to use {}: be root, or in the group `{}`", path.display(), crate::GROUP)]
    NotAllowed {
        /// The socket.
        path: PathBuf,
    },
    /// The socket cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        r#source: io::Error,
    },
    /// There was no answer in time.
    #[error("gleanerd does not answer on {}: `systemctl status gleanerd` shows its state", path.display())]
    Timeout {
        /// The socket.
        path: PathBuf,
    },
    /// The daemon ended, or gave up on this client.
    #[error("gleanerd closed the connection on {}: `systemctl status gleanerd` shows its state", path.display())]
    Closed {
        /// The socket.
        path: PathBuf,
    },
    /// The answer is not one.
    #[error("cannot understand the answer on {}, client and daemon may be of different versions: {source}", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// The parser's error.
        r#source: serde_json::Error,
    },
    /// The daemon says no.
    #[error(transparent)]
    Refused(#[from] Error),
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
    input: Vec<u8>,
}

#[derive(Serialize)]
struct Request<'a, P> {
    method: String,
    parameters: &'a P,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

/// A reply that is no error.
#[derive(Deserialize)]
struct Reply<R> {
    parameters: R,
    #[serde(default)]
    continues: bool,
}

impl Client {
    /// Connects to the daemon that listens at `path`.
    ///
    /// # Errors
    /// Nobody listens there, or the caller is not allowed to use the socket.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path).map_err(|source| {
            let path = path.to_owned();
            match source.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => ClientError::NotRunning { path },
                ErrorKind::PermissionDenied => ClientError::NotAllowed { path },
                _ => ClientError::Io { path, source },
            }
        })?;
        let client = Self { stream, path: path.to_owned(), input: Vec::new() };
        client.wait_at_most(Some(TIMEOUT))?;
        client.stream.set_write_timeout(Some(TIMEOUT)).map_err(|source| client.error(source))?;
        Ok(client)
    }

    /// `Status`.
    pub fn status(&mut self) -> Result<Status, ClientError> {
        self.call("Status", &Nothing {}).map(|reply: StatusReply| reply.status)
    }

    /// `Detach`.
    pub fn detach(&mut self, workload: &str) -> Result<(), ClientError> {
        let request = DetachRequest { workload: workload.to_owned() };
        self.call("Detach", &request).map(|Nothing {}| ())
    }

    /// `Pause`.
    pub fn pause(&mut self, reason: Option<String>) -> Result<(), ClientError> {
        self.call("Pause", &PauseRequest { reason }).map(|Nothing {}| ())
    }

    /// `Resume`.
    pub fn resume(&mut self) -> Result<(), ClientError> {
        self.call("Resume", &Nothing {}).map(|Nothing {}| ())
    }

    /// `Forget`: what was forgotten.
    pub fn forget(&mut self, program: Option<String>) -> Result<Vec<String>, ClientError> {
        self.call("Forget", &ForgetRequest { program }).map(|reply: ForgetReply| reply.programs)
    }

    /// `Reload`: the files read.
    pub fn reload(&mut self) -> Result<Vec<String>, ClientError> {
        self.call("Reload", &Nothing {}).map(|reply: ReloadReply| reply.files)
    }

    /// `Metrics`.
    pub fn metrics(&mut self) -> Result<String, ClientError> {
        self.call("Metrics", &Nothing {}).map(|reply: MetricsReply| reply.text)
    }

    /// `Why`.
    pub fn why(self, request: &WhyRequest) -> Result<Replies<WhyReply>, ClientError> {
        self.stream("Why", request)
    }

    /// `Watch`: one status per interval, without end.
    pub fn watch(self, interval: Duration) -> Result<Replies<StatusReply>, ClientError> {
        let interval_ms = Some(u64::try_from(interval.as_millis()).unwrap_or(u64::MAX));
        self.wait_at_most(Some(TIMEOUT.saturating_add(interval)))?;
        self.stream("Watch", &WatchRequest { interval_ms })
    }

    /// `Attach`: a reply when it is engaged, one with the summary when it has ended. There is no timeout: until then
    /// the daemon has nothing to say.
    pub fn attach(self, request: &AttachRequest) -> Result<Replies<AttachReply>, ClientError> {
        self.wait_at_most(None)?;
        self.stream("Attach", request)
    }

    /// A call with one reply.
    fn call<P: Serialize, R: DeserializeOwned>(
        &mut self,
        method: &str,
        parameters: &P,
    ) -> Result<R, ClientError> {
        self.send(method, parameters, false)?;
        Ok(self.receive()?.parameters)
    }

    /// A call with several replies.
    fn stream<P: Serialize, R>(mut self, method: &str, parameters: &P) -> Result<Replies<R>, ClientError> {
        self.send(method, parameters, true)?;
        Ok(Replies { client: self, ended: false, of: PhantomData })
    }

    fn send<P: Serialize>(&mut self, method: &str, parameters: &P, more: bool) -> Result<(), ClientError> {
        let request = Request { method: format!("{INTERFACE}.{method}"), parameters, more };
        let mut bytes = serde_json::to_vec(&request)
            .map_err(|source| ClientError::Answer { path: self.path.clone(), source })?;
        bytes.push(0);
        match self.stream.write_all(&bytes) {
            // A daemon that is busy says so before it is asked.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|source| self.error(source)),
        }
    }

    fn receive<R: DeserializeOwned>(&mut self) -> Result<Reply<R>, ClientError> {
        let mut searched = 0;
        let end = loop {
            if let Some(at) = self.input[searched..].iter().position(|b| *b == 0) {
                break searched + at;
            }
            searched = self.input.len();
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ClientError::Closed { path: self.path.clone() }),
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(error)),
            }
        };
        let rest = self.input.split_off(end + 1);
        let message = std::mem::replace(&mut self.input, rest);
        let message = &message[..end];
        // Only an error reply has a member `error`.
        serde_json::from_slice::<Error>(message).map_or_else(
            |_| {
                serde_json::from_slice(message)
                    .map_err(|source| ClientError::Answer { path: self.path.clone(), source })
            },
            |error| Err(error.into()),
        )
    }

    /// Waits for an answer this long at most; `None`: without end.
    ///
    /// # Errors
    /// The kernel refuses: the time is zero.
    pub fn wait_at_most(&self, time: Option<Duration>) -> Result<(), ClientError> {
        self.stream.set_read_timeout(time).map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> ClientError {
        let path = self.path.clone();
        match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Timeout { path },
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ClientError::Closed { path },
            _ => ClientError::Io { path, source },
        }
    }
}

/// The replies of a call that has several, each as it arrives; the first error is the last one.
#[derive(Debug)]
pub struct Replies<R> {
    client: Client,
    ended: bool,
    of: PhantomData<fn() -> R>,
}

impl<R> Replies<R> {
    /// Something that ends the call from another thread.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn hang_up(&self) -> Result<HangUp, ClientError> {
        let stream = self.client.stream.try_clone().map_err(|source| self.client.error(source))?;
        Ok(HangUp(stream))
    }
}

impl<R: DeserializeOwned> Iterator for Replies<R> {
    type Item = Result<R, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let reply = self.client.receive();
        self.ended = !matches!(reply, Ok(Reply { continues: true, .. }));
        Some(reply.map(|reply| reply.parameters))
    }
}

/// Ends a call that has several replies.
#[derive(Debug)]
pub struct HangUp(UnixStream);

impl HangUp {
    /// Closes this side of the connection: an `Attach` ends, and its last reply still arrives.
    pub fn now(&self) {
        // The daemon can be gone already.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}
