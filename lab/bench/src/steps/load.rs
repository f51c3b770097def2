//! The load: pairs of a client and a server over UNIX stream sockets, of which a controller runs either one
//! or all. A client that is not allowed to run blocks, and its server with it; nothing spins.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::StepsError;
use crate::stats::Rng;

/// Pairs running at high load; at low load it is one.
pub const PAIRS: usize = 16;

/// Iterations of dependent arithmetic per request: about 5 us on a current server core...
const ROUNDS: u32 = 3000;
/// ...or about 0.3 us, if hand-offs are to be most of the work.
const FEW_ROUNDS: u32 = 200;
/// Timeout for the minimum work of a phase.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Number of different requests; the client knows all replies.
const KEYS: u64 = 64;

/// A time with a constant number of running pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Start, in ns since the start of the recording.
    pub at_ns: u64,
    /// Number of running pairs.
    pub pairs: usize,
    /// Number of vCPUs that the load was allowed to use just before.
    #[serde(default)]
    pub allowed_before: usize,
    /// When servers had run on every vCPU that the load may use, counted from the start of the phase, in ns
    /// since the start of the recording; `None` if they never did.
    #[serde(default)]
    pub all_ran_ns: Option<u64>,
}

/// How the load steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Number of rises, and of falls.
    pub steps: u16,
    /// Minimum and maximum time that one pair runs alone. Actual times vary in between, reproducibly.
    pub low: (Duration, Duration),
    /// How long all pairs run.
    pub high: Duration,
    /// Interval at which requests are counted.
    pub sample: Duration,
    /// Whether a request is almost no work, so that one pair runs best on one vCPU. It then uses `read` and
    /// `write` instead of `recv` and `send`: only their bytes are counted per process, and these prove the
    /// smaller set.
    pub light: bool,
    /// Minimum requests between two samples of a phase. The phase is extended until that is reached and, with
    /// all pairs, servers have run on every vCPU, even if the machine stalls. `None`: phases end on time.
    pub least: Option<u64>,
}

impl Plan {
    /// Steps at equal intervals, counted every 5 ms.
    pub fn even(steps: u16, phase: Duration) -> Self {
        let sample = Duration::from_millis(5);
        Self { steps, low: (phase, phase), high: phase, sample, light: false, least: None }
    }

    /// Lengths of the phases, starting with a low one.
    fn lengths(&self) -> impl Iterator<Item = Duration> {
        let Self { low: (least, most), high, .. } = *self;
        let mut random = Rng::new(1);
        let spread = usize::try_from(most.saturating_sub(least).as_micros()).unwrap_or(usize::MAX);
        (0..=2 * u32::from(self.steps)).map(move |number| {
            if number % 2 == 1 {
                return high;
            }
            let beyond = if spread == 0 { 0 } else { random.below(spread) };
            least + Duration::from_micros(u64::try_from(beyond).unwrap_or(u64::MAX))
        })
    }
}

/// Progress at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Time in ns since the start of the recording.
    pub at_ns: u64,
    /// Requests completed by all pairs since then.
    pub requests: u64,
}

/// What one run of the load did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// By time, each lasting until the next one starts.
    pub phases: Vec<Phase>,
    /// End of the last phase, in ns since the start of the recording.
    pub end_ns: u64,
    /// By time, about as often as planned, from before the first phase until after the last.
    pub samples: Vec<Sample>,
}

/// Steps from one pair to [`PAIRS`] and back according to `plan`.
///
/// # Errors
/// If a thread or socket cannot be created, or a reply is wrong.
pub fn run(plan: &Plan) -> Result<Recording, StepsError> {
    let gate = Gate { running: AtomicUsize::new(0), lock: Mutex::new(()), changed: Condvar::new() };
    let counters: Vec<Counter> = (0..PAIRS).map(|_| Counter::default()).collect();
    let rounds = if plan.light { FEW_ROUNDS } else { ROUNDS };
    let replies: Vec<u64> = (0..KEYS).map(|key| work(key, rounds)).collect();
    let start = Instant::now();
    let first_uses = FirstUses::new(start);
    let samples = Mutex::new(vec![Sample { at_ns: 0, requests: 0 }]);
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(2 * PAIRS);
        let mut spawn_all = || {
            for (index, counter) in counters.iter().enumerate() {
                let pair = UnixStream::pair().map_err(failed("make a socket pair"))?;
                let [client, server] = [pair.0, pair.1].map(|end| End::new(end, plan.light));
                let (gate, replies, first_uses) = (&gate, &replies, &first_uses);
                threads.push(spawn(scope, format!("server/{index}"), move || {
                    serve(server, rounds, first_uses)
                })?);
                threads.push(spawn(scope, format!("client/{index}"), move || {
                    // End the run now rather than report the failure half a minute later.
                    ask(client, gate, index, replies, &counter.0).inspect_err(|_| gate.set(STOP))
                })?);
            }
            spawn(scope, String::from("sampler"), || {
                sample(&gate, &counters, start, plan.sample, &samples);
            })
        };
        let sampling = spawn_all();
        let phases = if sampling.is_ok() { control(&gate, &first_uses, &samples, plan) } else { Vec::new() };
        let end_ns = since(start);
        gate.set(STOP);
        for thread in threads {
            thread.join().map_err(|_| StepsError::Panicked)??;
        }
        sampling?.join().map_err(|_| StepsError::Panicked)?;
        let samples = std::mem::take(&mut *samples.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Recording { phases, end_ns, samples })
    })
}

/// On its own cache line, so that counting causes no false sharing.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// The number of pairs that ends the run.
const STOP: usize = usize::MAX;

/// Lets clients run or block.
struct Gate {
    /// Number of pairs that may run, or [`STOP`]. Written under the lock, but read without it.
    running: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Gate {
    /// Once the run is over, it stays over.
    fn set(&self, running: usize) {
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if self.running() != STOP {
            self.running.store(running, Ordering::Relaxed);
            self.changed.notify_all();
        }
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Blocks until pair `index` may run. Returns false if the run is over.
    fn enter(&self, index: usize) -> bool {
        if index >= self.running() {
            let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            let entered = self.changed.wait_while(lock, |()| index >= self.running());
            drop(entered.unwrap_or_else(PoisonError::into_inner));
        }
        self.running() != STOP
    }

    /// Blocks for `time` or until the run is over. Returns whether it is over.
    fn over_within(&self, time: Duration) -> bool {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(lock, time, |()| self.running() != STOP);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.running() == STOP
    }

    /// Checks `done` at this interval and blocks until it holds, [`TIMEOUT`] has passed, or the run is over.
    /// Returns whether the run is over.
    fn over_before(&self, done: impl Fn() -> bool, interval: Duration) -> bool {
        let begun = Instant::now();
        while !done() && begun.elapsed() < TIMEOUT {
            if self.over_within(interval) {
                return true;
            }
        }
        false
    }
}

/// When each vCPU was first used in the current phase.
struct FirstUses {
    start: Instant,
    /// Start of the phase, in ns since the start of the recording.
    begun_ns: AtomicU64,
    /// For each vCPU that the load may use at the start; a time before the phase means "not yet".
    first_ns: Vec<(usize, AtomicU64)>,
}

impl FirstUses {
    fn new(start: Instant) -> Self {
        let first_ns = allowed().into_iter().map(|cpu| (cpu, AtomicU64::new(0))).collect();
        Self { start, begun_ns: AtomicU64::new(1), first_ns }
    }

    /// Threads that record a time afterwards also read the clock afterwards, so recorded times need no reset.
    fn start_phase(&self) -> u64 {
        let now = since(self.start).max(1);
        self.begun_ns.store(now, Ordering::Release);
        now
    }

    /// Records that the calling thread runs on its vCPU.
    fn ran(&self) {
        let Ok(here) = nix::sched::sched_getcpu() else { return };
        let begun = self.begun_ns.load(Ordering::Acquire);
        let place = self.first_ns.iter().find(|(cpu, _)| *cpu == here);
        if let Some((_, first)) = place.filter(|(_, first)| first.load(Ordering::Relaxed) < begun) {
            // Must not overwrite a later time: this thread might be late with one of the previous phase.
            first.fetch_max(since(self.start), Ordering::Relaxed);
        }
    }

    /// When the last vCPU was first used, if all of them were.
    fn all_ran_ns(&self) -> Option<u64> {
        let begun = self.begun_ns.load(Ordering::Acquire);
        let mut last = 0;
        for (_, first) in &self.first_ns {
            let first = first.load(Ordering::Relaxed);
            if first < begun {
                return None;
            }
            last = last.max(first);
        }
        Some(last)
    }
}

/// The vCPUs that the calling thread may use.
fn allowed() -> Vec<usize> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap_or_default();
    (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

/// Changes the number of running pairs when due. Returns the phases that were started.
fn control(gate: &Gate, first_uses: &FirstUses, samples: &Mutex<Vec<Sample>>, plan: &Plan) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    for (number, length) in plan.lengths().enumerate() {
        let pairs = if number % 2 == 0 { 1 } else { PAIRS };
        let allowed_before = allowed().len();
        let at_ns = first_uses.start_phase();
        phases.push(Phase { at_ns, pairs, allowed_before, all_ran_ns: None });
        gate.set(pairs);
        // Measured from its own start: a phase is not shorter because this thread was late.
        let over = gate.over_within(length)
            || plan.least.is_some_and(|least| {
                let done = || {
                    requests_since(samples, at_ns) >= least
                        && (pairs == 1 || first_uses.all_ran_ns().is_some())
                };
                gate.over_before(done, plan.sample)
            });
        if let Some(phase) = phases.last_mut() {
            phase.all_ran_ns = first_uses.all_ran_ns();
        }
        if over {
            break;
        }
    }
    phases
}

/// Requests between the first sample from `at_ns` on and the last one.
fn requests_since(samples: &Mutex<Vec<Sample>>, at_ns: u64) -> u64 {
    let samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
    let inside = &samples[samples.partition_point(|sample| sample.at_ns < at_ns)..];
    inside.first().zip(inside.last()).map_or(0, |(first, last)| last.requests - first.requests)
}

/// Sums up the counters until the run is over.
fn sample(
    gate: &Gate,
    counters: &[Counter],
    start: Instant,
    interval: Duration,
    samples: &Mutex<Vec<Sample>>,
) {
    loop {
        let over = gate.over_within(interval);
        let requests = counters.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum();
        let sample = Sample { at_ns: since(start), requests };
        samples.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
        if over {
            return;
        }
    }
}

/// One end of a pair.
#[derive(Debug)]
enum End {
    /// Uses `recv` and `send`.
    Socket(UnixStream),
    /// Uses `read` and `write`.
    File(File),
}

impl End {
    fn new(socket: UnixStream, as_file: bool) -> Self {
        if as_file { Self::File(OwnedFd::from(socket).into()) } else { Self::Socket(socket) }
    }
}

impl Read for End {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.read(into),
            Self::File(file) => file.read(into),
        }
    }
}

impl Write for End {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.write(from),
            Self::File(file) => file.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The client: one request after the other while it may run.
fn ask(
    mut socket: End,
    gate: &Gate,
    index: usize,
    replies: &[u64],
    completed: &AtomicU64,
) -> Result<(), StepsError> {
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
            return Err(StepsError::Wrong { key, expected, found });
        }
        completed.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// The server: answers until the client disconnects.
fn serve(mut socket: End, rounds: u32, first_uses: &FirstUses) -> Result<(), StepsError> {
    let mut key = [0; 8];
    loop {
        match socket.read_exact(&mut key) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(failed("receive a request")(error)),
        }
        first_uses.ran();
        let reply = work(u64::from_le_bytes(key), rounds);
        socket.write_all(&reply.to_le_bytes()).map_err(failed("send a reply"))?;
    }
}

/// A chain of dependent arithmetic, which neither compiler nor core can shorten.
fn work(key: u64, rounds: u32) -> u64 {
    (0..rounds).fold(key, |x, _| (x ^ (x >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb).wrapping_add(1))
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, StepsError> {
    let builder = thread::Builder::new().name(name.clone());
    builder.spawn_scoped(scope, body).map_err(|source| StepsError::Spawn { name, source })
}

fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn failed(operation: &'static str) -> impl FnOnce(io::Error) -> StepsError {
    move |source| StepsError::Socket { operation, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_reply_is_noticed() {
        let pair = UnixStream::pair().unwrap();
        let [client, server] = [pair.0, pair.1].map(|end| End::new(end, true));
        let gate = Gate { running: AtomicUsize::new(1), lock: Mutex::new(()), changed: Condvar::new() };
        let completed = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| serve(server, ROUNDS, &FirstUses::new(Instant::now())));
            let error = ask(client, &gate, 0, &[work(0, ROUNDS), 7], &completed).unwrap_err();
            assert!(matches!(error, StepsError::Wrong { key: 1, expected: 7, .. }), "{error}");
        });
        assert_eq!(completed.into_inner(), 1);
    }
}
