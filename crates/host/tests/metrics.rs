//! The metrics as a Prometheus gets them.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gleaner_host::metrics::{Own, Totals};
use gleaner_host::{Cost, Report};
use gleaner_metrics::Exporter;
use gleaner_testing::host::RECORD;
use gleaner_testing::skipped;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Asks for the metrics, as somebody who does not ask for OpenMetrics.
fn ask(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// What `serve` answers.
fn served(totals: &Totals, own: &Own) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut exporter = Exporter::new(listener).unwrap();
    let client = std::thread::spawn(move || ask(address));
    while !client.is_finished() {
        let mut fds: Vec<PollFd<'_>> =
            exporter.fds().into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // The client's end is no event of the exporter.
        poll(&mut fds, PollTimeout::from(10_u8)).unwrap();
        exporter.serve(&mut || totals.encode(own));
    }
    client.join().unwrap()
}

#[test]
fn promtool_has_nothing_against_the_metrics() {
    let mut totals = Totals::default();
    let mut report = Report::parse(RECORD.as_bytes(), Path::new("host-record.json")).unwrap();
    report.vms[1].name = "a \"quoted\" \\ name\nof two lines".to_owned();
    totals.add(&report, Duration::from_secs(20));
    let own = Own {
        version: "1".to_owned(),
        cost: Some(Cost { pcpus: 0.02, share: 0.01 }),
        missing: 0,
        cpu: Duration::from_secs(1),
    };
    let answer = served(&totals, &own);
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(text.contains("gleaner_host_exits_total{vm=\"ping\",reason=\"HLT\"} 800000\n"), "{text}");
    assert!(text.contains("vm=\"a \\\"quoted\\\" \\\\ name\\nof two lines\""), "{text}");
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = command.spawn() else {
        return skipped("there is no promtool; `scripts/setup test` installs prometheus");
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}
