//! The side of whoever asks.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call::parse_reply;
use crate::{Call, Change, Changed, Status};

/// The scheduler answers at once, unless it is being loaded anew.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It is there and cannot be used.
    #[error("cannot ask the scheduler at {}: {source}{}", path.display(), remedy(r#source))]
    Io {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        r#source: io::Error,
    },
    /// The scheduler has ended meanwhile.
    #[error("the scheduler ended before it answered")]
    Ended,
    /// It is another version's.
    #[error("the scheduler's answer is not understood ({detail}): restart it with this version")]
    Answer {
        /// What is wrong with it.
        detail: String,
    },
    /// The scheduler does not do that.
    #[error("{0}")]
    Refused(String),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "; run it as root",
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "; it does not answer",
        _ => "",
    }
}

/// A connection to the scheduler.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Client {
    /// Connects to the scheduler that answers at `path`; `None`: there is none.
    ///
    /// # Errors
    /// The socket cannot be used, for want of rights for example.
    pub fn connect(path: &Path) -> Result<Option<Self>, ClientError> {
        let io = |source| ClientError::Io { path: path.to_owned(), source };
        let stream = match UnixStream::connect(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            stream => stream.map_err(io)?,
        };
        stream.set_read_timeout(Some(TIMEOUT)).map_err(io)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(io)?;
        Ok(Some(Self { stream: BufReader::new(stream), path: path.to_owned() }))
    }

    /// The process that answers, as the kernel says.
    ///
    /// # Errors
    /// The kernel does not say, or it is in another PID namespace.
    pub fn pid(&self) -> Result<i32, ClientError> {
        let peer =
            getsockopt(self.stream.get_ref(), PeerCredentials).map_err(|errno| self.io(errno.into()))?;
        if peer.pid() > 0 { Ok(peer.pid()) } else { Err(self.io(ErrorKind::NotFound.into())) }
    }

    /// Asks what is in force and what it has done.
    ///
    /// # Errors
    /// There is no answer.
    pub fn status(&mut self) -> Result<Status, ClientError> {
        self.ask(&Call::Status)
    }

    /// Changes something; returns what was not so already.
    ///
    /// # Errors
    /// There is no answer, or the scheduler refuses: then nothing has changed.
    pub fn set(&mut self, change: Change) -> Result<Vec<Changed>, ClientError> {
        self.ask(&Call::Set(change))
    }

    /// Asks for the counts by name.
    ///
    /// # Errors
    /// There is no answer.
    pub fn stats(&mut self) -> Result<Value, ClientError> {
        self.ask(&Call::Stats)
    }

    /// Asks what the counts mean.
    ///
    /// # Errors
    /// There is no answer.
    pub fn stats_meta(&mut self) -> Result<Value, ClientError> {
        self.ask(&Call::StatsMeta)
    }

    fn ask<T: DeserializeOwned>(&mut self, call: &Call) -> Result<T, ClientError> {
        let not_understood = |error: serde_json::Error| ClientError::Answer { detail: error.to_string() };
        let line = format!("{}\n", serde_json::to_string(&call.request()).map_err(not_understood)?);
        let mut answer = String::new();
        let asked = self.stream.get_mut().write_all(line.as_bytes());
        match asked.and_then(|()| self.stream.read_line(&mut answer)) {
            Ok(0) => return Err(ClientError::Ended),
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                return Err(ClientError::Ended);
            }
            Err(error) => return Err(self.io(error)),
            Ok(_) => {}
        }
        let value = parse_reply(&answer).map_err(not_understood)?.map_err(ClientError::Refused)?;
        serde_json::from_value(value).map_err(not_understood)
    }

    fn io(&self, source: io::Error) -> ClientError {
        ClientError::Io { path: self.path.clone(), source }
    }
}
