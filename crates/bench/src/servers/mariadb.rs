//! `MariaDB`: sysbench's OLTP scripts over a unix socket, 100,000 rows.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::cell::{Measured, Place, Server};
use super::launch::{Launch, make_dir};
use super::window::number_after;
use super::{Error, Result, Window};

const USER: &str = "mysql";
const TABLE_ROWS: u32 = 100_000;

/// Data directory, socket and pid file are the user's; the log is ours.
fn data(place: &Place) -> PathBuf {
    place.path("data")
}

fn socket(place: &Place) -> PathBuf {
    place.path("data/mariadb.sock")
}

pub(super) fn prepare(place: &Place) -> Result<()> {
    let done = place.path("prepared");
    if done.exists() {
        return Ok(());
    }
    let data = data(place);
    if data.exists() {
        // Half prepared: an earlier attempt failed.
        fs::remove_dir_all(&data).map_err(Error::file("remove", &data))?;
    }
    make_dir(&data, Some(USER))?;
    Launch::new("mariadb-install-db")
        .user(USER)
        .args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"])
        .arg(option("datadir", &data))
        .output()?;
    let server = start(place)?;
    Launch::new("mariadb")
        .args(["--no-defaults", "--user=root", "--execute=CREATE DATABASE sbtest"])
        .arg(option("socket", &socket(place)))
        .output()?;
    client(place, "oltp_point_select", 1).args(["prepare"]).output()?;
    // A clean end: every cell then starts without recovery.
    server.running.stop()?;
    fs::write(&done, "").map_err(Error::file("write", &done))
}

pub(super) fn measure(place: &Place, script: &str, threads: u32, window: Window) -> Result<Measured> {
    let server = start(place)?;
    let client = client(place, script, threads).args(["--time=0", "--report-interval=1", "run"]);
    let sample = window.of_lines(&client, |line| number_after(line, "tps: "))?;
    server.running.stop()?;
    Ok(Measured { sample, commands: vec![server.command, client.line()] })
}

fn start(place: &Place) -> Result<Server> {
    let (socket, pid_file) = (socket(place), place.path("data/mariadb.pid"));
    let launch = Launch::new("mariadbd")
        .user(USER)
        .args(["--no-defaults", "--skip-networking", "--skip-name-resolve", "--performance-schema=OFF"])
        .args(["--innodb-buffer-pool-size=256M"])
        .arg(option("datadir", &data(place)))
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

fn option(name: &str, path: &std::path::Path) -> String {
    format!("--{name}={}", path.display())
}
