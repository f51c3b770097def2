//! The load: pairs of a client and a server over UNIX stream sockets, of which a controller lets now one and now all
//! run. A client that may not run blocks, and its server with it; nothing spins.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Error;

/// Pairs that run at high load; at low load it is one.
pub const PAIRS: usize = 16;

/// How often the requests are counted.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// Steps of dependent arithmetic per request: some 5 us on a current server core.
const ROUNDS_PER_REQUEST: u32 = 3000;
/// Different requests; the client knows the replies to all of them.
const KEYS: u64 = 64;

/// A time in which the number of running pairs stays the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// When it was begun, in nanoseconds from the start of the recording.
    pub at_ns: u64,
    /// How many pairs run in it.
    pub pairs: usize,
}

/// How much had been done at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Nanoseconds from the start of the recording.
    pub at_ns: u64,
    /// Requests completed by all pairs since then.
    pub requests: u64,
}

/// What one run of the load did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// In order of time, each until the next one begins.
    pub phases: Vec<Phase>,
    /// The end of the last phase, in nanoseconds from the start of the recording.
    pub end_ns: u64,
    /// In order of time, about every 5 ms, from before the first phase until after the last.
    pub samples: Vec<Sample>,
}

/// Steps from one pair to [`PAIRS`] and back, `steps` times each, staying `phase` long at each level.
///
/// # Errors
/// A thread or socket that cannot be had, or a wrong reply.
pub fn run(steps: u16, phase: Duration) -> Result<Recording, Error> {
    let gate = Gate { running: AtomicUsize::new(0), lock: Mutex::new(()), changed: Condvar::new() };
    let counters: Vec<Counter> = (0..PAIRS).map(|_| Counter::default()).collect();
    let replies: Vec<u64> = (0..KEYS).map(work).collect();
    let start = Instant::now();
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(2 * PAIRS);
        let mut begin = || {
            for (index, counter) in counters.iter().enumerate() {
                let (client, server) = UnixStream::pair().map_err(failed("make a socket pair"))?;
                threads.push(spawn(scope, format!("server/{index}"), move || serve(server))?);
                let (gate, replies) = (&gate, &replies);
                threads.push(spawn(scope, format!("client/{index}"), move || {
                    // A failure ends the run instead of being told half a minute later.
                    ask(client, gate, index, replies, &counter.0).inspect_err(|_| gate.set(OVER))
                })?);
            }
            spawn(scope, String::from("sampler"), || sample(&gate, &counters, start))
        };
        let sampling = begin();
        let phases = if sampling.is_ok() { control(&gate, start, steps, phase) } else { Vec::new() };
        let end_ns = since(start);
        gate.set(OVER);
        for thread in threads {
            thread.join().map_err(|_| Error::Panicked)??;
        }
        let samples = sampling?.join().map_err(|_| Error::Panicked)?;
        Ok(Recording { phases, end_ns, samples })
    })
}

/// On a cache line of its own, so that counting makes no pair wait for another.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// The number of pairs that is told to end.
const OVER: usize = usize::MAX;

/// Lets clients run or block.
struct Gate {
    /// Pairs that may run, or [`OVER`]. Written under the lock; read without it before each request.
    running: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Gate {
    /// Once the run is over it stays over.
    fn set(&self, running: usize) {
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if self.running() != OVER {
            self.running.store(running, Ordering::Relaxed);
            self.changed.notify_all();
        }
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Blocks until pair `index` may run. False if the run is over.
    fn enter(&self, index: usize) -> bool {
        if index >= self.running() {
            let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            let entered = self.changed.wait_while(lock, |()| index >= self.running());
            drop(entered.unwrap_or_else(PoisonError::into_inner));
        }
        self.running() != OVER
    }

    /// Blocks for `time` or until the run is over. Whether it is over.
    fn over_within(&self, time: Duration) -> bool {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(lock, time, |()| self.running() != OVER);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.running() == OVER
    }
}

/// Changes the number of running pairs when it is time. The phases begun.
fn control(gate: &Gate, start: Instant, steps: u16, phase: Duration) -> Vec<Phase> {
    let mut phases = Vec::with_capacity(2 * usize::from(steps) + 1);
    for number in 0..=2 * u32::from(steps) {
        let pairs = if number % 2 == 0 { 1 } else { PAIRS };
        phases.push(Phase { at_ns: since(start), pairs });
        gate.set(pairs);
        let until = phase * (number + 1);
        if gate.over_within(until.saturating_sub(start.elapsed())) {
            break;
        }
    }
    phases
}

/// Adds up the counters until the run is over.
fn sample(gate: &Gate, counters: &[Counter], start: Instant) -> Vec<Sample> {
    let mut samples = vec![Sample { at_ns: 0, requests: 0 }];
    loop {
        let over = gate.over_within(SAMPLE_INTERVAL);
        let requests = counters.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum();
        samples.push(Sample { at_ns: since(start), requests });
        if over {
            return samples;
        }
    }
}

/// The client: one request after the other while it may run.
fn ask(
    mut socket: UnixStream,
    gate: &Gate,
    index: usize,
    replies: &[u64],
    completed: &AtomicU64,
) -> Result<(), Error> {
    let requests = (0..KEYS).zip(replies).cycle().skip(index);
    for (key, &expected) in requests {
        if !gate.enter(index) {
            break;
        }
        socket.write_all(&key.to_le_bytes()).map_err(failed("send a request"))?;
        let mut reply = [0; 8];
        socket.read_exact(&mut reply).map_err(failed("receive a reply"))?;
        let found = u64::from_le_bytes(reply);
        if found != expected {
            return Err(Error::Wrong { key, expected, found });
        }
        completed.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// The server: answers until the client has gone.
fn serve(mut socket: UnixStream) -> Result<(), Error> {
    let mut key = [0; 8];
    loop {
        match socket.read_exact(&mut key) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(failed("receive a request")(error)),
        }
        let reply = work(u64::from_le_bytes(key));
        socket.write_all(&reply.to_le_bytes()).map_err(failed("send a reply"))?;
    }
}

/// A chain of dependent arithmetic, which no compiler or core can shorten.
fn work(key: u64) -> u64 {
    (0..ROUNDS_PER_REQUEST)
        .fold(key, |x, _| (x ^ (x >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb).wrapping_add(1))
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Error> {
    let builder = thread::Builder::new().name(name.clone());
    builder.spawn_scoped(scope, body).map_err(|source| Error::Spawn { name, source })
}

fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn failed(operation: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Socket { operation, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_reply_is_noticed() {
        let (client, server) = UnixStream::pair().unwrap();
        let gate = Gate { running: AtomicUsize::new(1), lock: Mutex::new(()), changed: Condvar::new() };
        let completed = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| serve(server));
            let error = ask(client, &gate, 0, &[work(0), 7], &completed).unwrap_err();
            assert!(matches!(error, Error::Wrong { key: 1, expected: 7, .. }), "{error}");
        });
        assert_eq!(completed.into_inner(), 1);
    }
}
