//! Redis: GET of one small value over a UNIX socket, nothing written to disk.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::context::{CellContext, Server};
use super::error::{Result, ServersError};
use super::launch::Launch;
use super::running::Running;
use super::sample::Measured;
use super::window::Window;

/// The key that redis-benchmark reads by default.
const SET_KEY: &str = "SET key:__rand_int__ xxx\r\n";
/// Timeout of an answer; long enough for a machine that stalls for a while.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn measure(place: &CellContext, connections: u32, window: Window) -> Result<Measured> {
    let mut load = start(place, connections)?;
    let sample = window.of_counter(&mut load.client, || commands(&load.socket))?;
    load.client.stop()?;
    load.server.running.stop()?;
    Ok(Measured { sample, commands: vec![load.server.command, load.command] })
}

/// A server with a running client.
pub(super) struct Started {
    server: Server,
    pub(super) client: Running,
    command: String,
    socket: PathBuf,
}

impl Started {
    /// Number of commands that the server has processed.
    pub(super) fn commands(&self) -> Result<u64> {
        commands(&self.socket)
    }
}

/// Starts a server without a client; returns it and its socket.
pub(super) fn server(place: &CellContext) -> Result<(Server, PathBuf)> {
    let (socket, pid_file) = (place.path("redis.sock"), place.path("redis.pid"));
    let launch = Launch::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--unixsocket"])
        .arg(&socket)
        .arg("--pidfile")
        .arg(&pid_file)
        .arg("--dir")
        .arg(place.path(""));
    let server = place.server(launch, &pid_file, || ask(&socket, "PING\r\n").is_ok_and(|a| a == "+PONG"))?;
    Ok((server, socket))
}

pub(super) fn start(place: &CellContext, connections: u32) -> Result<Started> {
    let (server, socket) = server(place)?;
    ask(&socket, SET_KEY)?;
    // redis-benchmark cannot run for a given duration; it is stopped long before its end.
    let client = Launch::new("redis-benchmark")
        .args(["-t", "get", "-n", "1000000000", "-c", &connections.to_string(), "-s"])
        .arg(&socket);
    let running = client.start(&place.path("client.log"))?;
    Ok(Started { server, client: running, command: client.line(), socket })
}

/// Number of commands that the server has processed. The query itself counts as one, per window.
fn commands(socket: &Path) -> Result<u64> {
    let info = ask(socket, "INFO stats\r\n")?;
    let count = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    let count = count.and_then(|count| count.trim().parse().ok());
    count.ok_or(ServersError::Answer { program: "redis-server", answer: info })
}

/// Sends an inline command (Redis protocol specification, "Inline commands"); returns the unframed answer.
fn ask(socket: &Path, command: &str) -> Result<String> {
    let talk = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(command.as_bytes())?;
        stream.write_all(b"QUIT\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = talk().map_err(ServersError::file("talk to", socket))?;
    let answer = answer.strip_suffix("+OK\r\n").unwrap_or(&answer);
    Ok(answer.trim_end().to_owned())
}
