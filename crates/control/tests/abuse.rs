//! Clients that send garbage, half messages, too much and too often, and clients that do not read.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{Daemon, Setup, raw, status};
use gleaner_control::{AttachRequest, Client, ClientError, Error, Limits};
use proptest::prelude::*;

const METRICS: &[u8] = b"{\"method\":\"io.gleaner.Control.Metrics\"}\0";
const STATUS: &[u8] = b"{\"method\":\"io.gleaner.Control.Status\"}\0";

fn daemon(limits: Limits) -> Daemon {
    Daemon::with(Setup { limits, ..Setup::default() })
}

fn short(timeout_ms: u64) -> Limits {
    Limits { timeout: Duration::from_millis(timeout_ms), ..Limits::default() }
}

/// Waits until the server closes the connection. Returns how much it sent before.
fn drain(mut stream: &UnixStream) -> usize {
    let mut chunk = vec![0; 64 << 10];
    let mut total = 0;
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return total,
            Ok(n) => total += n,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return total,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn garbage_closes_its_own_connection_only() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let mut attached =
        daemon.client().attach(&AttachRequest { name: Some("a".into()), ..Default::default() }).unwrap();
    attached.next().unwrap().unwrap();
    for garbage in [
        "\0",
        "GET / HTTP/1.1\r\n\r\n\0",
        "[]\0",
        "{}\0",
        "{\"method\":7}\0",
        "{\"method\":\"a\",\"more\":1}\0",
        "\u{0}\u{0}",
    ] {
        assert_eq!(drain(&raw(&daemon.path, garbage.as_bytes())), 0, "{garbage:?}");
        client.metrics().unwrap();
    }
    // What came before is answered.
    let stream = raw(&daemon.path, &[METRICS, b"garbage\0", METRICS].concat());
    assert_eq!(drain(&stream), "{\"parameters\":{\"text\":\"# EOF\\n\"}}\0".len());
    daemon.until("all are logged", |seen| seen.refusals.len() == 8);
    let seen = daemon.seen();
    assert!(seen.refusals[1].contains("is not a request and was disconnected: "), "{:?}", seen.refusals);
    assert_eq!(seen.attached, ["a"]);
}

#[test]
fn a_request_that_is_too_long_closes_its_connection() {
    let daemon = Daemon::start();
    let request = |length: usize| {
        let mut request = b"{\"method\":\"io.gleaner.Control.Metrics\"".to_vec();
        request.resize(length - 1, b' ');
        request.push(b'}');
        request
    };
    let fits = [request(64 << 10), vec![0]].concat();
    let mut stream = raw(&daemon.path, &fits);
    assert_eq!(stream.read(&mut [0]).unwrap(), 1);
    for too_long in [[request((64 << 10) + 1), vec![0]].concat(), vec![b' '; 1 << 20]] {
        assert_eq!(drain(&raw(&daemon.path, &too_long)), 0);
    }
    daemon.until("both are logged", |seen| seen.refusals.len() == 2);
    assert!(daemon.seen().refusals[0].contains("more than 65536 bytes"));
}

#[test]
fn half_a_request_is_not_waited_for() {
    let daemon = daemon(short(100));
    let idle = daemon.client();
    let start = Instant::now();
    let half: Vec<_> = (0..8).map(|_| raw(&daemon.path, &STATUS[..9])).collect();
    // More of it does not help, as long as it is not complete.
    let mut slow = raw(&daemon.path, b"{");
    while slow.write_all(b" ").is_ok() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(start.elapsed() >= Duration::from_millis(100) && start.elapsed() < Duration::from_secs(10));
    assert_eq!(half.iter().map(drain).sum::<usize>(), 0);
    // Who holds nothing half can stay.
    let mut idle = idle;
    idle.status().unwrap();
    daemon.until("all are logged", |seen| seen.refusals.len() == 9);
}

#[test]
fn a_request_in_single_bytes_is_a_request() {
    let daemon = Daemon::start();
    let mut stream = raw(&daemon.path, b"");
    for byte in METRICS {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"{\"parameters");
}

#[test]
fn a_reader_that_is_too_slow_is_disconnected_and_keeps_nobody_waiting() {
    let limits = Limits { shortest_interval: Duration::from_millis(1), ..short(300) };
    let mut status = status();
    status.workloads = vec![status.workloads[0].clone(); 500];
    let daemon = Daemon::with(Setup { limits, status, journal: 200_000, ..Setup::default() });
    let watch =
        b"{\"method\":\"io.gleaner.Control.Watch\",\"more\":true,\"parameters\":{\"interval_ms\":1}}\0";
    let why = b"{\"method\":\"io.gleaner.Control.Why\",\"more\":true}\0";
    let streams = [raw(&daemon.path, watch), raw(&daemon.path, why)];
    let pipelined = raw(&daemon.path, &STATUS.repeat(90));
    for _ in 0..20 {
        let start = Instant::now();
        daemon.client().metrics().unwrap();
        assert!(start.elapsed() < Duration::from_millis(200), "{:?}", start.elapsed());
    }
    daemon.until("all three are disconnected", |seen| seen.refusals.len() == 3);
    assert!(daemon.seen().refusals.iter().all(|text| text.contains("did not read its replies")));
    // The kernel holds what was sent until then: about the socket's buffer.
    for stream in streams.iter().chain([&pipelined]) {
        let sent = drain(stream);
        assert!(sent < 2 << 20, "{sent} bytes");
    }
    assert!(daemon.seen().calls["Status"] < 20, "{:?}", daemon.seen().calls);
}

#[test]
fn more_requests_than_the_limit_wait() {
    let limits = Limits { requests_per_s: 20.0, ..Limits::default() };
    let daemon = daemon(limits);
    let start = Instant::now();
    let mut stream = raw(&daemon.path, &METRICS.repeat(60));
    // Another client does not wait for this one's turn.
    daemon.client().metrics().unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    let mut replies = vec![0; 60 * "{\"parameters\":{\"text\":\"# EOF\\n\"}}\0".len()];
    stream.read_exact(&mut replies).unwrap();
    // 40 at once, then 20 per second.
    assert!(start.elapsed() >= Duration::from_millis(950), "{:?}", start.elapsed());
    assert_eq!(daemon.seen().refusals, Vec::<String>::new());
}

#[test]
fn the_clients_are_limited_and_who_is_idle_makes_room() {
    let limits = Limits { clients: 4, connections_per_s: 1000.0, ..Limits::default() };
    let daemon = daemon(limits);
    let held: Vec<_> = (0..4)
        .map(|n| {
            let request = AttachRequest { name: Some(format!("w{n}")), ..Default::default() };
            let mut replies = daemon.client().attach(&request).unwrap();
            replies.next().unwrap().unwrap();
            replies
        })
        .collect();
    let busy = daemon.client().status().unwrap_err();
    assert!(
        matches!(&busy, ClientError::Refused(Error::Busy { reason }) if reason.contains("4 clients")),
        "{busy}"
    );
    drop(held);
    daemon.until("detached", |seen| seen.attached.is_empty());
    let idle: Vec<_> =
        (0..4).map(|_| daemon.client()).map(|mut client| client.metrics().map(|_| client).unwrap()).collect();
    // Nobody has been idle for long: after a second there is room.
    let start = Instant::now();
    while daemon.client().status().is_err() {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
    drop(idle);
}

#[test]
fn connections_in_a_loop_are_slowed_down() {
    let daemon = daemon(Limits { connections_per_s: 20.0, ..Limits::default() });
    let start = Instant::now();
    for _ in 0..60 {
        daemon.client().metrics().unwrap();
    }
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
}

#[test]
fn sixty_four_hostile_clients_and_a_friendly_one() {
    let daemon = daemon(Limits { connections_per_s: 10_000.0, ..short(500) });
    let before = descriptors();
    let path = daemon.path.clone();
    std::thread::scope(|scope| {
        for seed in 0..64u64 {
            let path = &path;
            scope.spawn(move || hostile(path, seed));
        }
        let end = Instant::now() + Duration::from_secs(2);
        let mut served = 0;
        while Instant::now() < end {
            // It can meet a server that is full; it is never without an answer.
            match Client::connect(&path).and_then(|mut client| client.metrics()) {
                Ok(_) => served += 1,
                Err(ClientError::Refused(Error::Busy { .. }) | ClientError::Closed { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(served > 10, "{served}");
    });
    daemon.until("all attachments have ended", |seen| seen.attached.is_empty());
    let mut client = daemon.client();
    client.metrics().unwrap();
    // The server notices the end of the last ones with its next turns.
    let end = Instant::now() + Duration::from_secs(10);
    while descriptors() > before + 4 {
        client.metrics().unwrap();
        assert!(Instant::now() < end, "{} descriptors, {before} before", descriptors());
    }
}

/// The open descriptors of this process; other tests have some of their own.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Sends what no client should, for two seconds.
fn hostile(path: &std::path::Path, seed: u64) {
    let end = Instant::now() + Duration::from_secs(2);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while Instant::now() < end {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let Ok(stream) = UnixStream::connect(path) else { continue };
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let attach =
            b"{\"method\":\"io.gleaner.Control.Attach\",\"more\":true,\"parameters\":{\"name\":\"h\"}}\0";
        let sent: Vec<u8> = match state % 7 {
            0 => state.to_le_bytes().repeat(100),
            1 => STATUS.repeat(200),
            2 => STATUS[..usize::try_from(state % 30).unwrap()].to_vec(),
            3 => vec![b'{'; 1 << 17],
            4 => b"{\"method\":\"io.gleaner.Control.Why\",\"more\":true}\0".to_vec(),
            5 => attach.to_vec(),
            _ => b"{\"method\":\"io.gleaner.Control.Watch\",\"more\":true,\"oneway\":true}\0".to_vec(),
        };
        let _ = (&stream).write_all(&sent);
        if state.is_multiple_of(3) {
            let _ = (&stream).read(&mut [0; 100]);
        }
        if state.is_multiple_of(5) {
            std::thread::sleep(Duration::from_millis(state % 50));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever is sent, in whatever pieces: the server goes on, and whoever asks properly is answered.
    #[test]
    fn no_bytes_harm_the_server(pieces in prop::collection::vec(piece(), 0..8)) {
        let daemon = daemon(Limits { connections_per_s: 10_000.0, ..Limits::default() });
        let stream = raw(&daemon.path, b"");
        for piece in pieces {
            let _ = (&stream).write_all(&piece);
        }
        drop(stream);
        daemon.client().metrics().unwrap();
        daemon.stop();
    }
}

/// Arbitrary bytes, and almost proper requests.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let method = "(io\\.gleaner\\.Control|org\\.varlink\\.service|)\\.?(Status|Why|Attach|Detach|Pause|GetInfo|GetInterfaceDescription|x)?";
    let flag = prop_oneof![
        Just(""),
        Just(",\"more\":true"),
        Just(",\"oneway\":true"),
        Just(",\"upgrade\":true"),
        Just(",\"more\":null")
    ];
    let parameters = prop_oneof![
        Just(String::new()),
        Just(",\"parameters\":null".to_owned()),
        Just(",\"parameters\":[1]".to_owned()),
        Just(format!(",\"parameters\":{}{}", "[".repeat(500), "]".repeat(500))),
        "[a-z_]{1,9}".prop_map(|key| format!(",\"parameters\":{{\"{key}\":-1}}")),
        Just(",\"parameters\":{\"workload\":\"a\",\"since_ms\":1e300}".to_owned()),
        Just(",\"parameters\":{\"name\":\"p\"}".to_owned()),
    ];
    let request = (method, flag, parameters, any::<bool>()).prop_map(|(method, flag, parameters, ends)| {
        let end = if ends { "\0" } else { "" };
        format!("{{\"method\":\"{method}\"{flag}{parameters}}}{end}").into_bytes()
    });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..200), request]
}
