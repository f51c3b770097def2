//! Redis: GET of one small value over a unix socket, nothing written to disk.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cell::{Measured, Place, Server};
use super::launch::Launch;
use super::running::Running;
use super::{Error, Result, Window};

/// The key that redis-benchmark asks for if it is not told to vary it.
const SET_KEY: &str = "SET key:__rand_int__ xxx\r\n";
/// How long an answer may take: a machine that stands still for a while is no fault of the server.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn measure(place: &Place, connections: u32, window: Window) -> Result<Measured> {
    let mut load = start(place, connections)?;
    let sample = window.of_counter(&mut load.client, || commands(&load.socket))?;
    load.client.stop()?;
    load.server.running.stop()?;
    Ok(Measured { sample, commands: vec![load.server.command, load.command] })
}

/// A server with its client at work.
pub(super) struct Started {
    server: Server,
    pub(super) client: Running,
    command: String,
    socket: PathBuf,
}

impl Started {
    /// How many commands the server has processed.
    pub(super) fn commands(&self) -> Result<u64> {
        commands(&self.socket)
    }
}

/// A server without a client, and its socket.
pub(super) fn server(place: &Place) -> Result<(Server, PathBuf)> {
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

pub(super) fn start(place: &Place, connections: u32) -> Result<Started> {
    let (server, socket) = server(place)?;
    ask(&socket, SET_KEY)?;
    // Redis has no load of a given duration; this one is stopped long before it is through.
    let client = Launch::new("redis-benchmark")
        .args(["-t", "get", "-n", "1000000000", "-c", &connections.to_string(), "-s"])
        .arg(&socket);
    let running = client.start(&place.path("client.log"))?;
    Ok(Started { server, client: running, command: client.line(), socket })
}

/// How many commands the server has processed. Our own question is one of them: one per window.
fn commands(socket: &Path) -> Result<u64> {
    let info = ask(socket, "INFO stats\r\n")?;
    let count = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    let count = count.and_then(|count| count.trim().parse().ok());
    count.ok_or(Error::Answer { program: "redis-server", answer: info })
}

/// Sends one inline command (Redis protocol specification, "Inline commands") and returns the answer without its
/// framing.
fn ask(socket: &Path, command: &str) -> Result<String> {
    let talk = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(command.as_bytes())?;
        stream.write_all(b"QUIT\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = talk().map_err(Error::file("talk to", socket))?;
    let answer = answer.strip_suffix("+OK\r\n").unwrap_or(&answer);
    Ok(answer.trim_end().to_owned())
}
