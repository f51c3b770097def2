//! `PostgreSQL`: pgbench's select-only script over a UNIX socket, scale 5.

use std::fs;

use nix::sys::signal::Signal;

use super::context::{CellContext, Server};
use super::error::Result;
use super::launch::Launch;
use super::sample::Measured;
use super::window::Window;

const USER: &str = "postgres";
const DATABASE: &str = "bench";

pub(super) fn prepare(place: &CellContext) -> Result<()> {
    place.prepare_data(USER, |data| {
        Launch::new("initdb")
            .user(USER)
            .args(["--no-sync", "--auth=trust", "--username=postgres", "--locale=C", "--pgdata"])
            .arg(data)
            .output()?;
        let server = start(place)?;
        client("createdb", place).args([DATABASE]).output()?;
        client("pgbench", place).args(["--initialize", "--scale=5", "--quiet", DATABASE]).output()?;
        server.running.stop()
    })
}

pub(super) fn measure(place: &CellContext, clients: u32, window: Window) -> Result<Measured> {
    let server = start(place)?;
    let client = client("pgbench", place)
        .args(["--select-only", "--no-vacuum", "--time=86400", "--progress=1"])
        .args([format!("--client={clients}"), String::from(DATABASE)]);
    let sample = window.of_lines(&client, rate)?;
    server.running.stop()?;
    Ok(Measured { sample, commands: vec![server.command, client.line()] })
}

fn start(place: &CellContext) -> Result<Server> {
    let data = place.data();
    let pid_file = data.join("postmaster.pid");
    let launch = Launch::new("postgres")
        .user(USER)
        .arg("-D")
        .arg(&data)
        .args(["-c", "listen_addresses=", "-c", "shared_buffers=256MB", "-c"])
        .arg(format!("unix_socket_directories={}", data.display()))
        // "Fast shutdown": does not wait for clients to disconnect.
        .stopped_by(Signal::SIGINT);
    // The eighth line of the pid file is the server's state (src/include/utils/pidfile.h). Checking it needs
    // no connection, and the socket exists before the server answers.
    let ready = || {
        fs::read_to_string(&pid_file)
            .is_ok_and(|text| text.lines().nth(7).is_some_and(|state| state.trim() == "ready"))
    };
    place.server(launch, &pid_file, ready)
}

fn client(program: &str, place: &CellContext) -> Launch {
    Launch::new(program).args(["--username=postgres", "--host"]).arg(place.data())
}

/// `progress: 2.0 s, 29000.9 tps, lat 0.034 ms stddev 0.012, 0 failed`
fn rate(line: &str) -> Option<f64> {
    line.strip_prefix("progress: ")?.split_once(" s, ")?.1.split_once(" tps")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn progress_lines_are_read() {
        let line = "progress: 2.0 s, 29000.9 tps, lat 0.034 ms stddev 0.012, 0 failed";
        assert_eq!(super::rate(line), Some(29000.9));
        assert_eq!(super::rate("pgbench (15.18)"), None);
    }
}
