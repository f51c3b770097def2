//! `MariaDB`: sysbench's OLTP scripts over a unix socket, 100,000 rows.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::cell::{Measured, Place, Server};
use super::launch::Launch;
use super::window::number_after;
use super::{Result, Window};

const USER: &str = "mysql";
const TABLE_ROWS: u32 = 100_000;

/// In the data directory, which is the server's to write in.
fn socket(place: &Place) -> PathBuf {
    place.path("data/mariadb.sock")
}

pub(super) fn prepare(place: &Place) -> Result<()> {
    place.prepare_data(USER, |data| {
        Launch::new("mariadb-install-db")
            .user(USER)
            .args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"])
            .arg(option("datadir", data))
            .output()?;
        let server = start(place)?;
        Launch::new("mariadb")
            .args(["--no-defaults", "--user=root", "--execute=CREATE DATABASE sbtest"])
            .arg(option("socket", &socket(place)))
            .output()?;
        client(place, "oltp_point_select", 1).args(["prepare"]).output()?;
        // A clean end: every cell then starts without recovery.
        server.running.stop()
    })
}

pub(super) fn measure(place: &Place, script: &str, threads: u32, window: Window) -> Result<Measured> {
    let server = start(place)?;
    let client = endless(place, script, threads);
    let sample = window.of_lines(&client, rate)?;
    server.running.stop()?;
    Ok(Measured { sample, commands: vec![server.command, client.line()] })
}

/// Has the server up while `run` does what it likes with the client's command line.
pub(super) fn with_client<T>(
    place: &Place,
    script: &str,
    threads: u32,
    run: impl FnOnce(Vec<OsString>) -> T,
) -> Result<T> {
    prepare(place)?;
    let server = start(place)?;
    let outcome = run(client(place, script, threads).args(["--time=0", "run"]).words());
    server.running.stop()?;
    Ok(outcome)
}

/// A client that goes on until it is stopped, and prints a line with its rate once per second.
pub(super) fn endless(place: &Place, script: &str, threads: u32) -> Launch {
    client(place, script, threads).args(["--time=0", "--report-interval=1", "run"])
}

/// The rate in a line of that client.
pub(super) fn rate(line: &str) -> Option<f64> {
    number_after(line, "tps: ")
}

pub(super) fn start(place: &Place) -> Result<Server> {
    let (socket, pid_file) = (socket(place), place.path("data/mariadb.pid"));
    let launch = Launch::new("mariadbd")
        .user(USER)
        .args(["--no-defaults", "--skip-networking", "--skip-name-resolve", "--performance-schema=OFF"])
        .args(["--innodb-buffer-pool-size=256M"])
        .arg(option("datadir", &place.data()))
        .arg(option("socket", &socket))
        .arg(option("pid-file", &pid_file));
    place.server(launch, &pid_file, || UnixStream::connect(&socket).is_ok())
}

fn client(place: &Place, script: &str, threads: u32) -> Launch {
    Launch::new("sysbench")
        .args([script, "--db-driver=mysql", "--mysql-user=root", "--mysql-db=sbtest", "--tables=1"])
        .args([format!("--table-size={TABLE_ROWS}"), format!("--threads={threads}")])
        .arg(option("mysql-socket", &socket(place)))
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
