//! `request-response`: clients that wait for servers, as with Redis or an RPC service.
//!
//! Synchronisation: a UNIX stream socket pair per client; each side blocks in `read` until the other has
//! written. A request names a key; the server looks up this key and three more in a hash map and formats them
//! (about 1 us, like a key-value store's GET), after computing for the granularity, if set. Self-check: the
//! client compares every reply with the expected table contents.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use super::amount::{WorkMeter, operations_per_clock};
use super::spec::{Granularity, Spec, Threads, Variant};
use super::work::{check, mix, rounds, run_threads};
use super::{Amount, Outcome, Settings, WorkloadError};

pub(super) const SPEC: Spec = Spec {
    name: "request-response",
    about: "clients ask servers for four table entries over a UNIX stream socket and block for each reply; one \
            operation is one request",
    variants: &[Variant {
        kind: None,
        threads: Threads::fixed("pairs of a client and a server, two threads each", 1, 1),
        granularity: Some(Granularity::us("what a server computes for a request, beside about 1 us", 0)),
        imbalance: None,
    }],
};

const TABLE_SIZE: u64 = 4096;
const KEYS_PER_REQUEST: u64 = 4;
/// Distance between the keys of one request; odd, so that it visits the whole table.
const KEY_STEP: u64 = 257;
/// The clock is read once per this many requests, while their computation is short.
const REQUESTS_PER_CLOCK: u64 = 8;

pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let pairs = settings.threads;
    let per_clock = operations_per_clock(settings.granularity).min(REQUESTS_PER_CLOCK);
    let table: HashMap<u64, u64> = (0..TABLE_SIZE).map(|key| (key, value_of(key))).collect();
    let mut sockets = Vec::with_capacity(2 * pairs);
    for _ in 0..pairs {
        let (client, server) = UnixStream::pair().map_err(|source| failed("socketpair", source))?;
        // Each end is moved into its thread and closed when that ends, which also ends the other side.
        sockets.extend([Mutex::new(Some(client)), Mutex::new(Some(server))]);
    }
    let (requests, elapsed) = run_threads(SPEC.name, 2 * pairs, |index, start| {
        let socket = sockets[index].lock().unwrap_or_else(PoisonError::into_inner).take();
        match socket {
            Some(socket) if index % 2 == 0 => {
                let meter = amount.share(index / 2, pairs).since(start, per_clock);
                ask(socket, &meter, index as u64)
            }
            Some(socket) => serve(socket, &table, rounds(settings.granularity)).map(|()| 0),
            None => Ok(0),
        }
    })?;
    let operations = requests.iter().sum();
    Ok(Outcome { operations, elapsed, checks: operations })
}

/// Makes the socket use `read` and `write`, like servers such as Redis. The kernel counts these per process
/// (`/proc/PID/io`), but not `recv` and `send`, which the standard library's sockets call.
fn as_file(socket: UnixStream) -> File {
    File::from(OwnedFd::from(socket))
}

/// The table's value for `key`.
fn value_of(key: u64) -> u64 {
    mix(key, 3)
}

fn keys(first: u64) -> impl Iterator<Item = u64> {
    (0..KEYS_PER_REQUEST).map(move |i| (first + i * KEY_STEP) % TABLE_SIZE)
}

/// The client: one request after the other until the meter ends it. Returns their number.
fn ask(socket: UnixStream, meter: &WorkMeter, client: u64) -> Result<u64, WorkloadError> {
    let mut socket = as_file(socket);
    let mut reply = Vec::new();
    let mut requests = 0_u64;
    while meter.more(requests) {
        let key = (client + requests) % TABLE_SIZE;
        socket.write_all(&key.to_le_bytes()).map_err(|source| failed("send a request", source))?;
        let mut length = [0; 4];
        socket.read_exact(&mut length).map_err(|source| failed("receive a reply", source))?;
        reply.resize(u32::from_le_bytes(length) as usize, 0);
        socket.read_exact(&mut reply).map_err(|source| failed("receive a reply", source))?;
        check_reply(key, &reply)?;
        requests += 1;
    }
    Ok(requests)
}

/// The server: answers until the client disconnects, with `rounds` rounds of computation per request.
fn serve(socket: UnixStream, table: &HashMap<u64, u64>, rounds: u32) -> Result<(), WorkloadError> {
    let mut socket = as_file(socket);
    let (mut key, mut text, mut message) = ([0; 8], String::new(), Vec::new());
    loop {
        match socket.read_exact(&mut key) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(failed("receive a request", error)),
        }
        black_box(mix(u64::from_le_bytes(key), rounds));
        text.clear();
        answer(u64::from_le_bytes(key), table, &mut text);
        message.clear();
        message.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        message.extend(text.as_bytes());
        socket.write_all(&message).map_err(|source| failed("send a reply", source))?;
    }
}

/// Formats the entries of the request for `first`: `key=value;` each, in hexadecimal.
fn answer(first: u64, table: &HashMap<u64, u64>, text: &mut String) {
    for key in keys(first) {
        if let Some(value) = table.get(&key) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{key:x}={value:x};");
        }
    }
}

fn check_reply(first: u64, reply: &[u8]) -> Result<(), WorkloadError> {
    let text = String::from_utf8_lossy(reply);
    let mut entries = text.split_terminator(';');
    for key in keys(first) {
        let found = entries.next().and_then(|entry| entry.split_once('='));
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        if found.map(|(k, v)| (number(k), number(v))) != Some((Some(key), Some(value_of(key)))) {
            let found = found.map_or_else(String::new, |(k, v)| format!("{k}={v}"));
            let expected = format!("{key:x}={:x}", value_of(key));
            return check(SPEC.name, "entry of a reply", expected.as_str(), found.as_str());
        }
    }
    check(SPEC.name, "number of entries in a reply", 0, entries.count())
}

fn failed(operation: &'static str, source: io::Error) -> WorkloadError {
    WorkloadError::Io { workload: SPEC.name, operation, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(first: u64) -> String {
        let table = (0..TABLE_SIZE).map(|key| (key, value_of(key))).collect();
        let mut text = String::new();
        answer(first, &table, &mut text);
        text
    }

    #[test]
    fn accepts_the_right_reply() {
        check_reply(5, reply(5).as_bytes()).unwrap();
    }

    #[test]
    fn notices_a_wrong_reply() {
        let right = reply(5);
        let other_key = reply(6);
        let cut_short = &right[..right.len() - 20];
        let too_long = format!("{right}0=0;");
        let one_digit = right.replacen('=', "=1", 1);
        for wrong in [other_key.as_str(), cut_short, &too_long, &one_digit, "", "\u{0};"] {
            assert!(check_reply(5, wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_server_ends_with_its_client() {
        let (client, server) = UnixStream::pair().unwrap();
        drop(client);
        serve(server, &HashMap::new(), 0).unwrap();
    }
}
