//! The open-loop client against real servers, at a low rate.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use gleaner_bench::client::{Address, Options, Outcome, Pace, Protocol, TIMEOUT};
use gleaner_bench::servers::{Window, find, measure};
use gleaner_proto::result::Metric;

mod common;
use common::installed;

/// Ends the server with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn redis(socket: &Path) -> io::Result<Server> {
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--daemonize", "no", "--unixsocket"]).arg(socket);
    let server = Server(command.stdout(std::process::Stdio::null()).spawn()?);
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(Instant::now() < deadline, "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(server)
}

fn open(socket: &Path, more: &[&str]) -> io::Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gleaner-bench"));
    command.args(["open", "--socket"]).arg(socket).args(more).output()
}

/// Number of requests due within this time from the start, independent of server and machine.
fn due(rate: f64, window: Duration) -> u64 {
    let options = Options {
        protocol: Protocol::Redis,
        address: Address::Port(0),
        pace: Pace::Poisson { rate },
        connections: 4,
        warmup: Duration::ZERO,
        window,
        seed: 273,
        timeout: TIMEOUT,
    };
    options.requests().unwrap()
}

/// Loads Redis on four connections for 3 s.
fn ask_redis(socket: &Path, rate: &str) -> Outcome {
    let load = ["--server", "redis", "--rate", rate, "--connections", "4", "--seconds", "3", "--seed", "273"];
    let output = open(socket, &[&load[..], &["--json"]].concat()).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The seed's schedule has 1,000 requests per second within 0.3 %.
#[test]
fn redis_is_asked_at_the_rate_that_is_wanted_whatever_it_does() {
    if !installed(&["redis-server"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("redis.sock");
    let _server = redis(&socket).unwrap();
    let outcome = ask_redis(&socket, "1000");
    assert_eq!(outcome.requests, due(1000.0, Duration::from_secs(3)));
    assert!(outcome.requests.abs_diff(3000) <= 9, "{outcome:?}");
    assert_eq!(outcome.answered, outcome.requests);
    // Their timing depends on the machine, but no more than were sent can arrive.
    let asked = outcome.requests as f64;
    assert!(outcome.rate > 0.0 && outcome.rate * 3.0 < asked + 0.5, "{outcome:?}");
    let (due, send) = (outcome.from_due.unwrap(), outcome.from_send.unwrap());
    assert!(due.mean_us >= send.mean_us && send.mean_us > 1.0 && due.p999_us >= due.p99_us, "{outcome:?}");

    // Rare enough that a client that sleeps hardly runs, whereas one that polls runs nearly all the time.
    let outcome = ask_redis(&socket, "5");
    assert!(outcome.client_cpu < 0.2, "it sleeps between its requests: {outcome:?}");

    let text = open(&socket, &["--server", "redis", "--rate", "500", "--seconds", "0.2"]).unwrap().stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("answers/s") && text.contains("from due") && text.contains("p99.9"), "{text}");

    let output = open(&socket, &["--server", "memcached", "--rate", "500"]).unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("not `STORED"), "another protocol is noticed at once: {stderr}");
}

#[test]
fn a_rate_is_needed_and_a_server_too() {
    let stderr = |args: &[&str]| {
        String::from_utf8(open(Path::new("/nonexistent/socket"), args).unwrap().stderr).unwrap()
    };
    assert!(stderr(&["--server", "redis"]).contains("--rate"));
    assert!(stderr(&["--server", "redis", "--rate", "0"]).contains("not between 0"));
    assert!(stderr(&["--server", "mongo", "--rate", "1"]).contains("one of: redis, memcached"));
    assert!(stderr(&["--server", "redis", "--rate", "1"]).contains("cannot connect"));
}

/// Every cell has the same arrivals, so the number of requests is also the same.
#[test]
fn open_rows_answer_every_request_and_have_a_latency() {
    for (name, program) in [("redis-open-5000-4", "redis-server"), ("memcached-open-5000-4", "memcached")] {
        if !installed(&[program]) {
            continue;
        }
        let state = tempfile::tempdir().unwrap();
        let row = find(name).unwrap().remove(0);
        let window = Window { warmup: Duration::from_millis(200), length: Duration::from_secs(3) };
        let measured = measure(&row, state.path(), window, &[]).unwrap();
        // A missing answer would be an error.
        let sample = measured.sample;
        let asked = due(5000.0, window.warmup + window.length) as f64;
        assert!(sample.rate() > 0.0 && sample.rate() * 3.0 < asked + 0.5, "{name}: {sample:?}");
        let [mean_us, p99_us] = [Metric::MeanUs, Metric::P99Us].map(|metric| sample.metrics[&metric]);
        // For every single request: none is sent before it is due.
        assert!(mean_us > 1.0 && sample.metrics[&Metric::DueMeanUs] >= mean_us, "{name}: {sample:?}");
        assert!(sample.metrics[&Metric::DueP99Us] >= p99_us, "{name}: {sample:?}");
        assert!(sample.metrics[&Metric::CpuClientS] > 0.0, "{name}: {sample:?}");
        let client = &measured.commands[1];
        assert!(
            client.contains("open --server") && client.contains("--rate 5000 --connections 4"),
            "{client}"
        );
        assert!(!state.path().join("redis/redis.sock").exists(), "the server has ended in order");
    }
}
