//! The protocol between the harness and the agent in a guest: frames of a JSON header and a body, each with its length.
//!
//! Requests are numbered, and answers have the same number, in any order: steps run side by side.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Name of the agent's port.
pub(crate) const PORT: &str = "gleaner.lab";
/// Larger frames are errors.
const MAX_FRAME_BYTES: u32 = 256 << 20;

/// A request of the harness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Run a program; the body is its input. The timeout counts from its start, or from the moment at which the file
    /// `counts_from` exists.
    Run { argv: Vec<String>, env: Vec<(String, String)>, timeout_ms: u64, counts_from: Option<String> },
    /// Send a signal to all processes of the program of request `step`.
    Signal { step: u64, signal: i32 },
    /// Send a file's content.
    Read { path: String },
    /// Write the body to a file, and create missing directories.
    Write { path: String, mode: u32 },
    /// Turn the machine off.
    PowerOff,
}

/// An answer of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Greeting, which answers no request.
    Hello { release: String },
    /// The program has ended; the body is its stdout and, from offset `stdout` on, its stderr.
    Ran { exit: Exit, stdout: u64, truncated: bool },
    /// Done; the body is the file's content, if it was requested.
    Done,
    /// The request failed.
    Failed { error: String },
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It exceeded its timeout and was killed.
    TimedOut,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::TimedOut => f.write_str("a timeout"),
        }
    }
}

/// A message with its request's number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Numbered<T> {
    pub(crate) id: u64,
    pub(crate) message: T,
}

/// Writes one frame with a single write.
pub(crate) fn send<T: Serialize>(to: &mut impl Write, id: u64, message: T, body: &[u8]) -> io::Result<()> {
    let header = serde_json::to_vec(&Numbered { id, message })?;
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::FileTooLarge);
    let mut frame = Vec::with_capacity(header.len() + body.len() + 8);
    frame.extend(length(&header)?.to_le_bytes());
    frame.extend(length(body)?.to_le_bytes());
    frame.extend(header);
    frame.extend(body);
    to.write_all(&frame)
}

/// Reads one frame.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<(Numbered<T>, Vec<u8>)> {
    let (mut header, mut body) = ([0; 4], [0; 4]);
    from.read_exact(&mut header)?;
    from.read_exact(&mut body)?;
    let header = part(from, u32::from_le_bytes(header))?;
    let body = part(from, u32::from_le_bytes(body))?;
    Ok((serde_json::from_slice(&header)?, body))
}

fn part(from: &mut impl Read, length: u32) -> io::Result<Vec<u8>> {
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_as_it_went() {
        let mut pipe = Vec::new();
        let request = Request::Write { path: "/x".to_owned(), mode: 0o755 };
        send(&mut pipe, 7, &request, b"body").unwrap();
        send(&mut pipe, 8, Request::PowerOff, b"").unwrap();
        let mut read = &pipe[..];
        let (first, body) = receive::<Request>(&mut read).unwrap();
        assert_eq!((first.id, first.message, &body[..]), (7, request, &b"body"[..]));
        assert_eq!(receive::<Request>(&mut read).unwrap().0.message, Request::PowerOff);
        assert_eq!(receive::<Request>(&mut read).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn noise_is_refused() {
        let noise = [0xff; 64];
        assert_eq!(receive::<Request>(&mut &noise[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
