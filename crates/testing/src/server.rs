//! Real servers as workloads, with clients that ask them at a given pace.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::group::Service;
use crate::process::{Running, until};
use crate::skipped;

/// A server on a Unix socket. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    process: Running,
    /// Where it listens.
    pub socket: PathBuf,
    /// A request with a short answer.
    request: &'static [u8],
}

/// Whether the programs are installed. If not, the test is [`skipped`].
#[track_caller]
pub fn has_programs(programs: &[&str]) -> bool {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let is_there = |name: &str| path.split(':').any(|dir| Path::new(dir).join(name).exists());
    let missing = programs.iter().find(|name| !is_there(name));
    if let Some(program) = missing {
        skipped(format_args!("needs {program}: scripts/setup test"));
    }
    missing.is_none()
}

impl Server {
    /// A redis-server that listens in `dir`, in the group of `service` or in the caller's.
    pub fn redis(dir: &Path, name: &str, service: Option<&Service>) -> Self {
        let socket = dir.join(format!("{name}.sock"));
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"]);
        command.arg("--unixsocket").arg(&socket).current_dir(dir);
        Self::start(command, socket, service, b"PING\r\n")
    }

    /// A memcached with two worker threads, likewise.
    pub fn memcached(dir: &Path, name: &str, service: Option<&Service>) -> Self {
        let socket = dir.join(format!("{name}.sock"));
        let mut command = Command::new("memcached");
        command.args(["-u", "root", "-m", "8", "-t", "2", "-s"]).arg(&socket).current_dir(dir);
        Self::start(command, socket, service, b"version\r\n")
    }

    fn start(
        mut command: Command,
        socket: PathBuf,
        service: Option<&Service>,
        request: &'static [u8],
    ) -> Self {
        // One that was killed leaves its socket behind.
        let _ = std::fs::remove_file(&socket);
        let process = Running::start(&mut command);
        if let Some(service) = service {
            service.add(process.pid());
        }
        let server = Self { process, socket, request };
        until("the server answers", || server.ask().is_some());
        server
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn ask(&self) -> Option<()> {
        Connection::new(&self.socket)?.ask(self.request)
    }

    /// One client that sends the next request `pause` after each answer.
    pub fn load(&self, pause: Duration) -> Load {
        Load::start(self.socket.clone(), self.request, pause)
    }
}

/// redis-benchmark with one connection that never pauses; dropping it ends it.
pub fn redis_benchmark(server: &Server, service: Option<&Service>) -> Running {
    let mut command = Command::new("sh");
    // Its progress goes to its output without end.
    let script = "exec redis-benchmark -s \"$0\" -c 1 -t get -l -q >/dev/null";
    command.args(["-c", script]).arg(&server.socket);
    let process = Running::start(&mut command);
    if let Some(service) = service {
        service.add(process.pid());
    }
    process
}

struct Connection(BufReader<UnixStream>);

impl Connection {
    fn new(socket: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        Some(Self(BufReader::new(stream)))
    }

    fn ask(&mut self, request: &[u8]) -> Option<()> {
        self.0.get_mut().write_all(request).ok()?;
        let mut answer = String::new();
        let length = self.0.read_line(&mut answer).ok()?;
        (length > 0).then_some(())
    }
}

/// A client on a thread of its own, until it is dropped or its server ends.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    answers: AtomicU64,
    pause_us: AtomicU64,
}

impl Load {
    fn start(socket: PathBuf, request: &'static [u8], pause: Duration) -> Self {
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), answers: 0.into(), pause_us: 0.into() });
        let of_client = Arc::clone(&shared);
        let thread = thread::spawn(move || of_client.run(&socket, request));
        let load = Self { shared, thread: Some(thread) };
        load.pause(pause);
        load
    }

    /// From now on with another pause between an answer and the next request.
    pub fn pause(&self, pause: Duration) {
        let us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        self.shared.pause_us.store(us, Ordering::Relaxed);
    }

    /// Requests that were answered so far.
    pub fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn run(&self, socket: &Path, request: &[u8]) {
        let Some(mut connection) = Connection::new(socket) else { return };
        while !self.stop.load(Ordering::Relaxed) && connection.ask(request).is_some() {
            self.answers.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(self.pause_us.load(Ordering::Relaxed)));
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
