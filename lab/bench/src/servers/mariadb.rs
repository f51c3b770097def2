//! `MariaDB`: sysbench's OLTP scripts over a UNIX socket, 100,000 rows.

use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_kernel::Root;
use gleaner_proto::result::Metric;

use super::context::{CellContext, Server};
use super::error::{Result, ServersError};
use super::launch::Launch;
use super::log::tail;
use super::machine::Meter;
use super::sample::Measured;
use super::window::{Window, number_after, sleep};

const USER: &str = "mysql";
const TABLE_ROWS: u32 = 100_000;
/// Timeout for a client with a time limit to end after it.
const END: Duration = Duration::from_secs(30);

/// In the data directory, where the server may write.
fn socket(place: &CellContext) -> PathBuf {
    place.path("data/mariadb.sock")
}

pub(super) fn prepare(place: &CellContext) -> Result<()> {
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
        // A clean shutdown: every cell starts without recovery.
        server.running.stop()
    })
}

pub(super) fn measure(place: &CellContext, script: &str, threads: u32, window: Window) -> Result<Measured> {
    let server = start(place)?;
    let client = endless(place, script, threads);
    let sample = window.of_lines(&client, rate)?;
    server.running.stop()?;
    Ok(Measured { sample, commands: vec![server.command, client.line()] })
}

/// Point selects in an open loop (Poisson, by sysbench). Latencies count from the arrival and include the
/// time in sysbench's own queue.
pub(super) fn measure_at_rate(
    place: &CellContext,
    rate: u32,
    threads: u32,
    window: Window,
) -> Result<Measured> {
    let server = start(place)?;
    let (warmup, length) = window.whole_seconds();
    let mut client = client(place, "oltp_point_select", threads)
        .args([format!("--rate={rate}"), format!("--time={}", warmup + length)])
        .args(["--percentile=99"]);
    if warmup > 0 {
        // A checkpoint prints the statistics and resets them: the last summary is that of the window.
        client = client.args([format!("--report-checkpoints={warmup}")]);
    }
    let client = client.args(["run"]);
    let log = place.path("client.log");
    let mut running = client.start(&log)?;
    sleep(Duration::from_secs(warmup))?;
    let meter = Meter::start(&Root::system())?;
    sleep(Duration::from_secs(length))?;
    let sample = meter.stop()?;
    match running.wait(END)? {
        Some(status) if status.success() => {}
        Some(status) => return Err(running.ended(status)),
        None => return Err(running.timed_out("end", END)),
    }
    server.running.stop()?;
    let report = fs::read_to_string(&log).map_err(ServersError::file("read", &log))?;
    let (events, latencies) = summary(&report)
        .ok_or_else(|| ServersError::Answer { program: "sysbench", answer: tail(&report) })?;
    let mut sample = sample.with_rate(events / length as f64);
    sample.metrics.extend(latencies);
    Ok(Measured { sample, commands: vec![server.command, client.line()] })
}

/// Number of events, and mean and 99th percentile of their latency, in the last summary of a report.
fn summary(report: &str) -> Option<(f64, [(Metric, f64); 2])> {
    let last = |label| report.lines().rev().find_map(|line| number_after(line, label));
    let (events, sum_ms) = (last("total number of events:")?, last(" sum:")?);
    // The line with the mean has only two decimals, in ms; the sum has many more.
    let mean_us = sum_ms * 1e3 / events;
    let p99_us = last("99th percentile:")? * 1e3;
    (events > 0.0).then_some((events, [(Metric::MeanUs, mean_us), (Metric::P99Us, p99_us)]))
}

/// Runs the server while `run` uses the client's command line.
pub(super) fn with_client<T>(
    place: &CellContext,
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

/// A client that runs until it is stopped, and prints a line with its rate once per second.
pub(super) fn endless(place: &CellContext, script: &str, threads: u32) -> Launch {
    client(place, script, threads).args(["--time=0", "--report-interval=1", "run"])
}

/// The rate in a line of that client.
pub(super) fn rate(line: &str) -> Option<f64> {
    number_after(line, "tps: ")
}

pub(super) fn start(place: &CellContext) -> Result<Server> {
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

fn client(place: &CellContext, script: &str, threads: u32) -> Launch {
    Launch::new("sysbench")
        .args([script, "--db-driver=mysql", "--mysql-user=root", "--mysql-db=sbtest", "--tables=1"])
        .args([format!("--table-size={TABLE_ROWS}"), format!("--threads={threads}")])
        .arg(option("mysql-socket", &socket(place)))
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_after_the_checkpoint_counts() {
        let part = |events, sum, p99| {
            format!(
                "General statistics:\n    total time:                          3.0045s\n    \
                 total number of events:              {events}\n\nLatency (ms):\n         \
                 min:                                    0.01\n         avg:                                    0.16\n         \
                 99th percentile:                        {p99}\n         sum:                                   {sum}\n"
            )
        };
        let report = part("195", "11.95", "1.16") + &part("345", "55.41", "3.55");
        let (events, [(_, mean_us), (_, p99_us)]) = summary(&report).unwrap();
        assert!((events - 345.0).abs() < 1e-9);
        assert!((mean_us - 160.6).abs() < 0.1 && (p99_us - 3550.0).abs() < 1e-6, "{mean_us} {p99_us}");
        assert_eq!(summary("FATAL: unable to connect"), None);
        assert_eq!(summary(&part("0", "0.00", "0.00")), None);
    }
}
