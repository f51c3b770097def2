//! One measurement: starts what the row needs, runs the load, stops everything.

use std::ffi::OsString;
use std::path::Path;

use super::context::CellContext;
use super::error::Result;
use super::rows::{Load, Row, check_programs};
use super::sample::Measured;
use super::window::Window;
use super::{mariadb, memcached, nginx, postgres, programs, redis};
use crate::client::{Address, Pace, Protocol};

/// Subdirectory for its data.
const MARIADB: &str = "mariadb";

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
    place: &CellContext,
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
pub fn with_mariadb<T>(
    state: &Path,
    script: &str,
    threads: u32,
    run: impl FnOnce(Vec<OsString>) -> T,
) -> Result<T> {
    mariadb::with_client(&CellContext::new(state, MARIADB, &[])?, script, threads, run)
}

pub(super) fn place<'a>(row: &Row, state: &Path, wrapper: &'a [OsString]) -> Result<CellContext<'a>> {
    let name = match row.load {
        Load::Redis { .. } | Load::Open { protocol: Protocol::Redis, .. } => "redis",
        Load::Memcached { .. } | Load::Open { protocol: Protocol::Memcached, .. } => "memcached",
        Load::MariaDb { .. } | Load::MariaDbAtRate { .. } => MARIADB,
        Load::Postgres { .. } => "postgres",
        Load::Nginx { .. } => "nginx",
        Load::Proxy { .. } => "proxy",
        Load::Pipe | Load::Sysbench { .. } | Load::Own { .. } => "programs",
    };
    CellContext::new(state, name, wrapper)
}
