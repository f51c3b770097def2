//! One measurement: starts what the row needs, runs the load, stops everything.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::launch::{Launch, make_dir};
pub use super::machine::CpuUse;
use super::rows::{Load, Row, check_programs};
use super::running::Running;
use super::{Error, Result, Window, mariadb, memcached, nginx, postgres, programs, redis};
use crate::client::{Address, Pace, Protocol};

/// Subdirectory for its data.
const MARIADB: &str = "mariadb";

/// Measurements of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Operations per second, in the row's unit.
    pub rate: f64,
    /// Start of the window, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub began_unix_ms: u64,
    /// Actual length of the window.
    #[serde(rename = "window_s", with = "seconds")]
    pub window: Duration,
    /// CPU use of the whole machine during the window.
    pub cpu: CpuUse,
    /// Only for open loops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// Request latencies, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean, from send to answer; for sysbench, from the arrival in its own queue.
    pub mean_us: f64,
    /// 99th percentile, measured the same way.
    pub p99_us: f64,
    /// Mean from when a request was due, if known; includes the client's own delay.
    pub due_mean_us: Option<f64>,
    /// 99th percentile from when it was due.
    pub due_p99_us: Option<f64>,
    /// CPU time of the client in vCPUs, if known.
    pub client_cpu: Option<f64>,
}

/// Measurements of one cell, and its commands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The measurement.
    pub sample: Sample,
    /// Command lines of server and client, as started.
    pub commands: Vec<String>,
}

/// A server that is ready for its client.
pub(super) struct Server {
    pub(super) running: Running,
    pub(super) command: String,
}

/// The directory with a cell's prepared data, sockets and logs, and the wrapper of its server's command line.
pub(super) struct Place<'a> {
    dir: PathBuf,
    pub(super) wrapper: &'a [OsString],
}

impl Place<'_> {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A subdirectory, for the second server of a row.
    pub(super) fn below(&self, name: &str) -> Result<Self> {
        let dir = self.path(name);
        make_dir(&dir, None)?;
        Ok(Place { dir, wrapper: self.wrapper })
    }

    /// The directory of a database's data; belongs to the user that the server runs as.
    pub(super) fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Lets `make` fill an empty [`Place::data`] that belongs to `user`, unless that has been done. Removes
    /// the remains of failed attempts.
    pub(super) fn prepare_data(&self, user: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let (done, data) = (self.path("prepared"), self.data());
        if done.exists() {
            return Ok(());
        }
        if data.exists() {
            fs::remove_dir_all(&data).map_err(Error::file("remove", &data))?;
        }
        make_dir(&data, Some(user))?;
        make(&data)?;
        fs::write(&done, "").map_err(Error::file("write", &done))
    }

    pub(super) fn server(&self, launch: Launch, pid_file: &Path, ready: impl Fn() -> bool) -> Result<Server> {
        let launch = launch.wrapped(self.wrapper).pid_file(pid_file);
        let mut running = launch.start(&self.path("server.log"))?;
        running.wait_ready(ready)?;
        Ok(Server { running, command: launch.line() })
    }
}

/// Prepares the row's data, once per `state` directory; most rows need none.
///
/// # Errors
/// If a required program is missing or the server fails, or a signal arrives.
pub fn prepare(row: &Row, state: &Path) -> Result<()> {
    check_programs(std::slice::from_ref(row))?;
    let place = place(row, state, &[])?;
    match row.load {
        Load::MariaDb { .. } | Load::MariaDbAtRate { .. } => mariadb::prepare(&place),
        Load::Postgres { .. } => postgres::prepare(&place),
        Load::Own { program, .. } => program.prepare(&place),
        Load::Redis { .. }
        | Load::Open { .. }
        | Load::Memcached { .. }
        | Load::Nginx { .. }
        | Load::Proxy { .. }
        | Load::Pipe
        | Load::Sysbench { .. } => Ok(()),
    }
}

/// Measures `row` once, in this process and its children. `wrapper` is put before the server's command line;
/// it is empty unless the row applies the mode to the server only.
///
/// # Errors
/// If server or client do not start, end early, or answer unexpectedly, or if a signal arrives. Everything
/// that was started has then been stopped.
pub fn measure(row: &Row, state: &Path, window: Window, wrapper: &[OsString]) -> Result<Measured> {
    prepare(row, state)?;
    let place = place(row, state, wrapper)?;
    match row.load {
        Load::Redis { connections } => redis::measure(&place, connections, window),
        Load::MariaDb { script, threads } => mariadb::measure(&place, script, threads, window),
        Load::Postgres { clients } => postgres::measure(&place, clients, window),
        Load::Nginx { connections } => nginx::measure(&place, connections, window),
        Load::Proxy { connections } => nginx::measure_proxy(&place, connections, window),
        Load::Open { protocol, rate, connections } => {
            by_client(&place, protocol, Pace::Poisson { rate: f64::from(rate) }, connections, window)
        }
        Load::Memcached { connections } => {
            by_client(&place, Protocol::Memcached, Pace::Closed, connections, window)
        }
        Load::MariaDbAtRate { rate, threads } => mariadb::measure_at_rate(&place, rate, threads, window),
        Load::Own { program, pairs } => program.measure(&place, pairs, window),
        Load::Pipe => programs::pipe(window),
        Load::Sysbench { test, args } => programs::sysbench(test, args, window),
    }
}

/// Measures a server with our own client.
fn by_client(
    place: &Place,
    protocol: Protocol,
    rhythm: Pace,
    connections: u32,
    window: Window,
) -> Result<Measured> {
    let (server, address) = match protocol {
        Protocol::Redis => redis::server(place).map(|(server, socket)| (server, Address::Unix(socket)))?,
        Protocol::Memcached => {
            memcached::server(place).map(|(server, port)| (server, Address::Port(port)))?
        }
    };
    let (sample, command) = window.of_client(protocol, address, rhythm, connections)?;
    server.running.stop()?;
    Ok(Measured { sample, commands: vec![server.command, command] })
}

/// Runs `MariaDB` while `run` uses the command line of a sysbench `script` against it, which runs until it is
/// stopped. The data is prepared once per `state` directory.
///
/// # Errors
/// If the server does not start or stop cleanly, or if a signal arrives.
/// If the server does not start or stop in order, or if a signal comes.
pub fn with_mariadb<T>(
    state: &Path,
    script: &str,
    threads: u32,
    run: impl FnOnce(Vec<OsString>) -> T,
) -> Result<T> {
    mariadb::with_client(&place_in(state, MARIADB, &[])?, script, threads, run)
}

pub(super) fn place<'a>(row: &Row, state: &Path, wrapper: &'a [OsString]) -> Result<Place<'a>> {
    let name = match row.load {
        Load::Redis { .. } | Load::Open { protocol: Protocol::Redis, .. } => "redis",
        Load::Memcached { .. } | Load::Open { protocol: Protocol::Memcached, .. } => "memcached",
        Load::MariaDb { .. } | Load::MariaDbAtRate { .. } => MARIADB,
        Load::Postgres { .. } => "postgres",
        Load::Nginx { .. } => "nginx",
        Load::Proxy { .. } => "proxy",
        Load::Pipe | Load::Sysbench { .. } | Load::Own { .. } => "programs",
    };
    place_in(state, name, wrapper)
}

fn place_in<'a>(state: &Path, name: &str, wrapper: &'a [OsString]) -> Result<Place<'a>> {
    // Servers change their directory, which would invalidate relative paths.
    let dir = std::path::absolute(state.join(name)).map_err(Error::file("find", state))?;
    make_dir(&dir, None)?;
    Ok(Place { dir, wrapper })
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}
