//! An open-loop client: requests arrive by a Poisson process, whether or not earlier ones have been answered.
//!
//! A closed loop (ask, wait, ask again) turns faster answers into more requests. The clients of a production
//! service ask at their own rate and notice faster answers as lower latency. It is measured from when a
//! request was *due*, even if the client itself was late (no coordinated omission), and also from its send,
//! which excludes delays of the client's own timer.
//!
//! The client is one thread that sleeps in `ppoll(2)` until an answer arrives or the next request is due,
//! with minimal timer slack. It never polls: a client that keeps a vCPU busy would hide the wake-ups to be
//! measured.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::runner::interrupted;
use crate::stats::Rng;
use arrivals::Arrivals;
use connection::{Connection, Socket};
use latencies::Latencies;

mod arrivals;
mod connection;
mod latencies;
mod protocol;

pub use latencies::Summary;
pub use protocol::Protocol;

/// Timeout for the last answers after the last request; long enough for a machine that stalls for a while.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Upper limit of a sleep, so that a signal arriving just before it is noticed soon.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Minimal timer slack in ns; 0 would mean the default of 50 us, which would delay every request.
const TIMER_SLACK_NS: libc::c_ulong = 1;

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A UNIX stream socket.
    Unix(PathBuf),
    /// A TCP port of the loopback interface.
    Port(u16),
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Open loop: exponential gaps, each request on a random connection.
    Poisson {
        /// Mean requests per second, over all connections.
        rate: f64,
    },
    /// Closed loop: each connection sends its next request once it has the answer.
    Closed,
}

/// What to send, where and for how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// Protocol of the server.
    pub protocol: Protocol,
    /// Address of the server.
    pub address: Address,
    /// When requests are sent.
    pub pace: Pace,
    /// Number of connections; at least 1.
    pub connections: usize,
    /// Length of the unmeasured load before the window.
    pub warmup: Duration,
    /// Length of the measured window.
    pub window: Duration,
    /// Seed of the arrivals; the same seed gives the same arrivals.
    pub seed: u64,
    /// Timeout for the last answers after the last request; [`TIMEOUT`] unless some are known to be missing.
    pub timeout: Duration,
}

impl Options {
    /// How many requests of an open loop are due in the window, independent of the machine; `None` for a
    /// closed loop.
    pub fn requests(&self) -> Option<u64> {
        let (mut arrivals, window) = (self.schedule().0?, self.due());
        let due = std::iter::from_fn(|| arrivals.take_due(u64::MAX));
        Some(due.filter(|due| window.contains(due)).count() as u64)
    }

    /// The arrivals of an open loop, and the generator that chooses the connection of each.
    fn schedule(&self) -> (Option<Arrivals>, Rng) {
        let mut random = Rng::new(self.seed);
        let choice = Rng::new(random.next_u64());
        let arrivals = match self.pace {
            Pace::Poisson { rate } => Some(Arrivals::new(random, rate, self.due().end)),
            Pace::Closed => None,
        };
        (arrivals, choice)
    }

    /// The window, in ns since the start.
    fn due(&self) -> std::ops::Range<u64> {
        nanos(self.warmup)..nanos(self.warmup + self.window)
    }

    /// The command line for the same load.
    pub fn command_line(&self) -> String {
        let address = match &self.address {
            Address::Unix(path) => format!("--socket {}", path.display()),
            Address::Port(port) => format!("--port {port}"),
        };
        let pace = match self.pace {
            Pace::Poisson { rate } => format!("--rate {rate}"),
            Pace::Closed => String::from("--closed"),
        };
        format!(
            "gleaner-bench open --server {} {address} {pace} --connections {} --warmup {} --seconds {} --seed {}",
            self.protocol,
            self.connections,
            self.warmup.as_secs_f64(),
            self.window.as_secs_f64(),
            self.seed
        )
    }
}

/// The client's measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of requests due in the window.
    pub requests: u64,
    /// Number of requests answered before the timeout.
    pub answered: u64,
    /// Answers per second that arrived within the window.
    pub rate: f64,
    /// Latency of the answered requests from when they were due; `None` if there are none.
    pub from_due: Option<Summary>,
    /// Latency from their send.
    pub from_send: Option<Summary>,
    /// CPU time of the client, in vCPUs (1.0 is one vCPU all the time).
    pub client_cpu: f64,
}

/// Why a load could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A socket operation failed.
    #[error("cannot {operation}: {source}")]
    Socket {
        /// The failed operation.
        operation: &'static str,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// The server closed a connection.
    #[error("the server closed a connection")]
    Closed,
    /// An unexpected answer.
    #[error("the server answered `{found}`, not `{expected}`")]
    Wrong {
        /// The expected answer.
        expected: String,
        /// The received answer, up to the first difference and a little more.
        found: String,
    },
    /// Some answers did not arrive in time.
    #[error("{missing} of {requests} requests were not answered within {timeout:?} after the last one")]
    Unanswered {
        /// Number of missing answers.
        missing: u64,
        /// Number of requests.
        requests: u64,
        /// The timeout after the last request.
        timeout: Duration,
    },
    /// A signal ended the load.
    #[error("interrupted")]
    Interrupted,
}

/// A table for the terminal.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} requests, {} answered, {:.0} answers/s", self.requests, self.answered, self.rate)?;
        writeln!(f, "latency in us    mean      p50      p99    p99.9      max")?;
        for (name, summary) in [("from due", self.from_due), ("from send", self.from_send)] {
            let Some(s) = summary else { continue };
            write!(f, "  {name:<10}")?;
            for us in [s.mean_us, s.p50_us, s.p99_us, s.p999_us, s.max_us] {
                write!(f, "{us:>9.1}")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "the client used {:.1} % of a vCPU", 100.0 * self.client_cpu)
    }
}

impl Outcome {
    /// Checks that no answer is missing.
    ///
    /// # Errors
    /// [`ClientError::Unanswered`].
    pub fn check(&self, options: &Options) -> Result<(), ClientError> {
        match self.requests.saturating_sub(self.answered) {
            0 => Ok(()),
            missing => {
                let (requests, timeout) = (self.requests, options.timeout);
                Err(ClientError::Unanswered { missing, requests, timeout })
            }
        }
    }
}

/// Runs the load in the calling thread, whose timer slack it sets.
///
/// # Errors
/// If a connection fails, an answer is wrong, or a signal arrives. Missing answers are not an error; the
/// outcome counts them.
pub fn run(options: &Options) -> Result<Outcome, ClientError> {
    let failed = |operation| move |errno: nix::Error| ClientError::Socket { operation, source: errno.into() };
    nix::sys::prctl::set_timerslack(TIMER_SLACK_NS).map_err(failed("set the timer slack"))?;
    let sockets = (0..options.connections.max(1))
        .map(|_| Socket::open(&options.address, options.protocol))
        .collect::<Result<Vec<Socket>, ClientError>>()?;
    let mut load = Load::new(options, &sockets);
    let mut fds: Vec<PollFd> =
        sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
    let before = thread_cpu();
    let start = Instant::now();
    let now = || nanos(start.elapsed());
    loop {
        load.send(now())?;
        let Some(until) = load.wait_until() else { break };
        let timeout = Duration::from_nanos(until.saturating_sub(now())).min(LONGEST_SLEEP);
        for (fd, connection) in fds.iter_mut().zip(&load.connections) {
            fd.set_events(connection.events());
        }
        match ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None) {
            Ok(0) if now() >= load.give_up => break,
            Ok(0) | Err(nix::Error::EINTR) => {}
            Ok(_) => {
                let ready = |fd: &PollFd| fd.any().unwrap_or(true);
                for (index, _) in fds.iter().enumerate().filter(|(_, fd)| ready(fd)) {
                    load.receive(index, now)?;
                }
            }
            Err(errno) => return Err(failed("wait for answers")(errno)),
        }
        if interrupted() {
            return Err(ClientError::Interrupted);
        }
    }
    let (cpu, time) = (thread_cpu().saturating_sub(before), start.elapsed());
    Ok(load.outcome(options.window, cpu.as_secs_f64() / time.as_secs_f64()))
}

/// The state of a running load. Times are in ns since its start.
struct Load<'a> {
    connections: Vec<Connection<'a>>,
    /// Arrivals of an open loop; `None` for a closed one.
    arrivals: Option<Arrivals>,
    /// Chooses the connection of each arrival.
    random: Rng,
    window: std::ops::Range<u64>,
    /// When to give up on missing answers.
    give_up: u64,
    requests: u64,
    arrived: u64,
    from_due: Latencies,
    from_send: Latencies,
}

impl<'a> Load<'a> {
    fn new(options: &Options, sockets: &'a [Socket]) -> Self {
        let (arrivals, random) = options.schedule();
        let mut load = Self {
            connections: sockets.iter().map(|socket| Connection::new(socket, options.protocol)).collect(),
            arrivals,
            random,
            window: options.due(),
            give_up: nanos(options.warmup + options.window + options.timeout),
            requests: 0,
            arrived: 0,
            from_due: Latencies::default(),
            from_send: Latencies::default(),
        };
        if load.arrivals.is_none() {
            (0..load.connections.len()).for_each(|index| load.request(index, 0, 0));
        }
        load
    }

    /// Sends the requests that are due.
    fn send(&mut self, now: u64) -> Result<(), ClientError> {
        while let Some(due) = self.arrivals.as_mut().and_then(|arrivals| arrivals.take_due(now)) {
            let index = self.random.below(self.connections.len());
            self.request(index, due, now);
        }
        self.connections.iter_mut().try_for_each(Connection::flush)
    }

    fn request(&mut self, index: usize, due: u64, now: u64) {
        self.requests += u64::from(self.window.contains(&due));
        self.connections[index].push(due, now);
    }

    /// When the next request is due or, after the last one, when to give up; `None` once all are answered.
    fn wait_until(&self) -> Option<u64> {
        let next = self.arrivals.as_ref().and_then(Arrivals::next_due);
        let waiting = self.connections.iter().any(Connection::is_waiting);
        next.or(waiting.then_some(self.give_up))
    }

    /// Receives the answers available on a connection.
    fn receive(&mut self, index: usize, now: impl Fn() -> u64) -> Result<(), ClientError> {
        let (answers, at) = self.connections[index].receive(now)?;
        self.arrived += if self.window.contains(&at) { answers.len() as u64 } else { 0 };
        for request in &answers {
            if self.window.contains(&request.due) {
                self.from_due.push(at.saturating_sub(request.due));
                self.from_send.push(at.saturating_sub(request.sent));
            }
        }
        if self.arrivals.is_none() && at < self.window.end {
            for _ in &answers {
                self.request(index, at, at);
            }
        }
        Ok(())
    }

    fn outcome(self, window: Duration, client_cpu: f64) -> Outcome {
        Outcome {
            requests: self.requests,
            answered: self.from_due.len() as u64,
            rate: self.arrived as f64 / window.as_secs_f64(),
            from_due: self.from_due.summary(),
            from_send: self.from_send.summary(),
            client_cpu,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn thread_cpu() -> Duration {
    // This clock always exists on Linux.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::thread;

    use super::*;

    const MS: u64 = 1_000_000;
    const DELAY: Duration = Duration::from_millis(5);

    /// A server that answers the first `answers` requests for the key, each after `delay`, and then only
    /// reads. Returns how often the next request had arrived before an answer.
    fn serve(listener: &UnixListener, protocol: Protocol, answers: usize, delay: Duration) -> usize {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut set, mut request) = (vec![0; protocol.set().len()], vec![0; protocol.request().len()]);
        stream.read_exact(&mut set).unwrap();
        stream.write_all(protocol.stored()).unwrap();
        let (mut asked, mut ahead) = (0, 0);
        while stream.read_exact(&mut request).is_ok() {
            if asked < answers {
                thread::sleep(delay);
                ahead += usize::from(readable(&stream) > 0);
                stream.write_all(protocol.answer()).unwrap();
            }
            asked += 1;
        }
        ahead
    }

    /// Number of readable bytes.
    fn readable(stream: &UnixStream) -> libc::c_int {
        let mut bytes = 0;
        // SAFETY: FIONREAD writes one int to a valid place.
        let rc =
            unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(stream), libc::FIONREAD, &raw mut bytes) };
        assert_eq!(rc, 0, "{}", io::Error::last_os_error());
        bytes
    }

    fn options(pace: Pace) -> Options {
        Options {
            protocol: Protocol::Redis,
            address: Address::Port(0),
            pace,
            connections: 1,
            warmup: Duration::from_millis(20),
            window: Duration::from_millis(200),
            seed: 1,
            timeout: TIMEOUT,
        }
    }

    /// The client's measurements, and how often the server had the next request before an answer.
    fn run_against(options: &Options, answers: usize, delay: Duration) -> (Outcome, usize) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let options = Options { address: Address::Unix(path), ..options.clone() };
        thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener, options.protocol, answers, delay));
            let outcome = run(&options).unwrap();
            (outcome, server.join().unwrap())
        })
    }

    #[test]
    fn a_slow_server_does_not_slow_the_arrivals_down() {
        let options = options(Pace::Poisson { rate: 1000.0 });
        let (outcome, ahead) = run_against(&options, usize::MAX, DELAY);
        assert!((150..250).contains(&outcome.requests), "due at their own rate: {outcome:?}");
        assert_eq!(Some(outcome.requests), options.requests());
        assert_eq!(outcome.answered, outcome.requests);
        assert!(ahead > 0, "none is waited for");
        assert!(outcome.rate <= 220.0, "at most 44 answers of 5 ms until the end of the window: {outcome:?}");
        let mean = outcome.from_due.unwrap().mean_us;
        assert!(mean > 100_000.0, "the queue counts: some 200 requests of 5 ms each: {outcome:?}");
    }

    #[test]
    fn a_closed_loop_waits_for_the_server() {
        let options = options(Pace::Closed);
        let (outcome, ahead) = run_against(&options, usize::MAX, DELAY);
        assert_eq!(
            (ahead, options.requests()),
            (0, None),
            "each request has waited for the answer before it"
        );
        assert!(outcome.answered == outcome.requests && outcome.answered <= 41, "{outcome:?}");
        // There are none if the machine stalled for the whole window.
        assert!(outcome.from_due.is_none_or(|due| due.p50_us >= 5_000.0), "{outcome:?}");
    }

    /// With a simulated clock, on which each answer takes 30 ms.
    #[test]
    fn a_closed_loop_asks_again_with_each_answer_until_the_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (options, sockets) = (options(Pace::Closed), [Socket::Unix(ours)]);
        // A missing request fails the test instead of blocking it.
        theirs.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut load = Load::new(&options, &sockets);
        let mut request = vec![0; options.protocol.request().len()];
        load.send(0).unwrap();
        // The request at 0 is due before the window, and the answer at 240 arrives after it.
        for ms in (30..=240).step_by(30) {
            theirs.read_exact(&mut request).unwrap();
            assert_eq!(readable(&theirs), 0);
            theirs.write_all(options.protocol.answer()).unwrap();
            load.receive(0, || ms * MS).unwrap();
            load.send(ms * MS).unwrap();
        }
        assert_eq!((readable(&theirs), load.wait_until()), (0, None), "the end is the end");
        let outcome = load.outcome(options.window, 0.0);
        assert_eq!((outcome.requests, outcome.answered), (7, 7));
        assert!((outcome.rate - 35.0).abs() < 1e-9, "{outcome:?}");
        assert!((outcome.from_due.unwrap().max_us - 30_000.0).abs() < 1e-9, "{outcome:?}");
    }

    #[test]
    fn answers_that_never_come_are_counted() {
        let timeout = Duration::from_millis(100);
        let options = Options { timeout, ..options(Pace::Poisson { rate: 500.0 }) };
        let (outcome, _) = run_against(&options, 20, Duration::ZERO);
        assert!(outcome.answered < outcome.requests, "{outcome:?}");
        let error = outcome.check(&options).unwrap_err().to_string();
        assert!(error.ends_with("were not answered within 100ms after the last one"), "{error}");
    }
}
