//! A real Prometheus scrapes the exporter and evaluates what the dashboard and the alerts ask; promtool checks the
//! exposition and the rules.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Script, queries};
use gleaner_metrics::Exporter;
use gleaner_testing::prometheus::{Prometheus, packaging};
use gleaner_testing::skipped;
use nix::poll::{PollFd, PollFlags, poll};

/// Runs promtool; `None` if it is not installed, and the test is skipped.
fn promtool(arguments: &[&str], input: &str) -> Option<Output> {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skipped("there is no promtool; `scripts/setup test` installs prometheus");
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Some(child.wait_with_output().unwrap())
}

/// Fails unless promtool has succeeded without a complaint.
fn no_complaint(output: &Output) {
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    assert!(output.status.success() && !text.contains("FAILED"), "{text}");
}

#[test]
fn promtool_has_nothing_against_the_exposition() {
    let mut script = Script::new(8);
    script.step();
    let text = text_format(&script.encode());
    if let Some(output) = promtool(&["check", "metrics"], &text) {
        no_complaint(&output);
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

/// What somebody gets who does not ask for OpenMetrics.
fn text_format(exposition: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut exporter = Exporter::new(listener).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let reader = std::thread::spawn(move || {
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    });
    while !reader.is_finished() {
        serve(&mut exporter, &mut || exposition.to_owned());
    }
    let response = reader.join().unwrap();
    response.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// One turn of a daemon's loop.
fn serve(exporter: &mut Exporter, metrics: &mut dyn FnMut() -> String) {
    let mut fds: Vec<_> = exporter.fds().into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    poll(&mut fds, 10_u16).unwrap();
    exporter.serve(metrics);
}

#[test]
fn the_alerts_fire_when_they_should_and_only_then() {
    let rules = packaging("prometheus/gleaner.rules.yml");
    let tests = packaging("prometheus/gleaner.rules.test.yml");
    for arguments in [["check", "rules", rules.to_str().unwrap()], ["test", "rules", tests.to_str().unwrap()]]
    {
        if let Some(output) = promtool(&arguments, "") {
            no_complaint(&output);
        }
    }
    let (rules, tests) = (fs::read_to_string(rules).unwrap(), fs::read_to_string(tests).unwrap());
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let quiet = tests.contains(&format!("alertname: {alert}, exp_alerts: []"));
        let fires = tests.split(&format!("alertname: {alert}\n")).skip(1).any(|then| {
            then.trim_start().lines().take(2).any(|line| line.trim_start().starts_with("- exp_labels:"))
        });
        assert!(quiet && fires, "there is no test of {alert} on a quiet day, or of its firing");
    }
}

#[test]
fn a_prometheus_scrapes_it_and_the_dashboard_and_the_alerts_have_data() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let Some(prometheus) = Prometheus::start(dir.path(), listener.local_addr().unwrap()) else { return };
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| daemon(listener, &done));
        // Also where an assertion fails: the scope waits for the thread.
        let _done = Done(&done);
        check(&prometheus);
    });
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Something happens with each scrape.
fn daemon(listener: TcpListener, done: &AtomicBool) {
    let mut exporter = Exporter::new(listener).unwrap();
    let mut script = Script::new(8);
    while !done.load(Ordering::Relaxed) {
        serve(&mut exporter, &mut || {
            script.step();
            script.encode()
        });
    }
}

fn check(prometheus: &Prometheus) {
    prometheus.wait_for("up{job=\"gleaner\"} == 1");
    assert_eq!(prometheus.wait_for("gleaner_build_info")[0]["metric"]["version"], common::VERSION);

    // It understood the types and units, which only OpenMetrics has.
    let target = prometheus.get("targets/metadata", &[("metric", "gleaner_wakeup_latency_seconds")]).unwrap();
    assert_eq!(
        (&target[0]["type"], &target[0]["unit"]),
        (&"histogram".into(), &"seconds".into()),
        "{target}"
    );

    for query in queries() {
        prometheus.wait_for(&query);
    }
    // 1000 wake-ups of 6 us in the mean, the slowest of which took 40 us.
    let p99 = "histogram_quantile(0.995, rate(gleaner_wakeup_latency_seconds_bucket{source=\"traced\"}[1m]))";
    let p99: f64 = prometheus.wait_for(p99)[0]["value"][1].as_str().unwrap().parse().unwrap();
    assert!((32e-6..64e-6).contains(&p99), "{p99}");

    // What is true of the script, and lasts: the alerts that need no half hour.
    prometheus.wait_for("ALERTS{alertname=\"GleanerChangeNotUndone\", alertstate=\"firing\"}");
    prometheus.wait_for("ALERTS{alertname=\"GleanerSteppedBack\", alertstate=\"firing\"}");
    let rules = prometheus.get("rules", &[]).unwrap();
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
}
