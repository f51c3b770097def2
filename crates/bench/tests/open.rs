//! The open-loop client against real servers, at a low rate.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use gleaner_bench::client::Outcome;
use gleaner_bench::servers::{Latency, Window, find, measure};

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

/// The seed's schedule has 1,000 requests per second within 0.3 %: the rest of the tolerance is the client's.
#[test]
fn redis_is_asked_at_the_rate_that_is_wanted_whatever_it_does() {
    if !installed(&["redis-server"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("redis.sock");
    let _server = redis(&socket).unwrap();
    let load =
        ["--server", "redis", "--rate", "1000", "--connections", "4", "--seconds", "3", "--seed", "273"];
    let output = open(&socket, &[&load[..], &["--json"]].concat()).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let outcome: Outcome = serde_json::from_slice(&output.stdout).unwrap();
    assert!((outcome.rate / 1000.0 - 1.0).abs() < 0.02, "{outcome:?}");
    assert_eq!(outcome.answered, outcome.requests);
    let (due, send) = (outcome.from_due.unwrap(), outcome.from_send.unwrap());
    assert!(due.mean_us >= send.mean_us && send.mean_us > 1.0 && due.p999_us >= due.p99_us, "{outcome:?}");
    assert!(outcome.client_cpu < 0.5, "it sleeps between its requests: {outcome:?}");

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

/// Every cell has the same arrivals, so that the number of requests is the same too.
#[test]
fn open_rows_answer_every_request_and_have_a_latency() {
    for (name, program) in [("redis-open-2000-4", "redis-server"), ("memcached-open-2000-4", "memcached")] {
        if !installed(&[program]) {
            continue;
        }
        let state = tempfile::tempdir().unwrap();
        let row = find(name).unwrap().remove(0);
        let window = Window { warmup: Duration::from_millis(200), length: Duration::from_secs(3) };
        let measured = measure(&row, state.path(), window, &[]).unwrap();
        let sample = measured.sample;
        assert!((sample.rate / 2000.0 - 1.0).abs() < 0.02, "{name}: {sample:?}");
        let Latency { mean_us, p99_us, due_mean_us, client_cpu, .. } = sample.latency.unwrap();
        assert!(mean_us > 1.0 && p99_us > mean_us && due_mean_us.unwrap() >= mean_us, "{name}: {sample:?}");
        assert!(client_cpu.unwrap() < 0.7, "{name}: {sample:?}");
        assert!(measured.commands[1].contains("open --server"), "{:?}", measured.commands);
        assert!(!state.path().join("redis/redis.sock").exists(), "the server has ended in order");
    }
}
