use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use proptest::prelude::*;

use super::*;

const GOOD: &[u8] = b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";

fn exporter() -> Exporter {
    Exporter::new(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap()
}

fn connect(exporter: &Exporter) -> TcpStream {
    let stream = TcpStream::connect(exporter.listener.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(LONGEST)).unwrap();
    stream
}

fn send(exporter: &Exporter, request: &[u8]) -> TcpStream {
    let mut stream = connect(exporter);
    stream.write_all(request).unwrap();
    stream
}

/// Reads until the other side has closed the connection.
fn read(mut stream: TcpStream) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    })
}

fn is_ready(exporter: &Exporter, within: u16) -> bool {
    let mut fds: Vec<_> = exporter.fds().into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    poll(&mut fds, PollTimeout::from(within)).unwrap() > 0
}

/// The daemon's loop, until what is waited for has happened.
fn drive(exporter: &mut Exporter, exposition: &str, mut done: impl FnMut(&Exporter) -> bool) {
    let started = Instant::now();
    while !done(exporter) {
        assert!(started.elapsed() < LONGEST, "stalled: {exporter:?}");
        if is_ready(exporter, 10) {
            exporter.serve(&mut || exposition.to_owned());
        }
    }
}

fn response(exporter: &mut Exporter, exposition: &str) -> String {
    let reader = read(send(exporter, GOOD));
    drive(exporter, exposition, |_| reader.is_finished());
    reader.join().unwrap()
}

#[test]
fn a_request_is_answered_and_its_connection_ends() {
    let mut exporter = exporter();
    let response = response(&mut exporter, "a 1\n# EOF\n");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("a 1\n# EOF\n"), "{response}");
    drive(&mut exporter, "", |exporter| exporter.clients.is_empty());
    assert!(!is_ready(&exporter, 0));
}

#[test]
fn a_request_can_come_in_pieces_and_with_more_behind_it() {
    let mut exporter = exporter();
    let mut stream = connect(&exporter);
    let pieces = GOOD.chunks(7).chain([&b"GET / HTTP/1.1\r\n\r\nwhat is this"[..]]);
    for piece in pieces {
        stream.write_all(piece).unwrap();
        exporter.serve(&mut || "a 1\n".to_owned());
    }
    let reader = read(stream);
    drive(&mut exporter, "a 1\n", |_| reader.is_finished());
    let response = reader.join().unwrap();
    assert_eq!(response.matches("HTTP/1.1").count(), 1, "{response}");
    assert!(response.ends_with("\r\n\r\na 1\n"), "{response}");
}

#[test]
fn a_slow_reader_holds_up_nobody_and_still_gets_everything() {
    let mut exporter = exporter();
    let large = "x".repeat(20 << 20);
    let slow = send(&exporter, GOOD);
    drive(&mut exporter, &large, |exporter| {
        exporter.clients.iter().any(|client| matches!(client.stage, Stage::Response(_, sent) if sent > 0))
    });
    assert!(!is_ready(&exporter, 0), "the loop would spin");
    assert!(response(&mut exporter, "a 1\n").ends_with("a 1\n"));
    let reader = read(slow);
    drive(&mut exporter, "", |_| reader.is_finished());
    assert!(reader.join().unwrap().ends_with(&large));
}

#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    let mut exporter = exporter();
    let silent: Vec<_> = (0..5 * MOST_CLIENTS).map(|_| connect(&exporter)).collect();
    drive(&mut exporter, "", |exporter| exporter.clients.len() == MOST_CLIENTS && !is_ready(exporter, 0));
    assert!(response(&mut exporter, "a 1\n").ends_with("a 1\n"));
    drop(silent);
    drive(&mut exporter, "", |exporter| exporter.clients.is_empty());
}

#[test]
fn a_client_has_only_so_much_time() {
    let mut exporter = exporter();
    let mut stream = send(&exporter, &GOOD[..10]);
    drive(&mut exporter, "", |exporter| exporter.clients.len() == 1);
    let since = exporter.clients[0].since;
    let mut none = || unreachable!("there is no request");
    exporter.serve_at(since + LONGEST.mul_f64(0.999), &mut none);
    assert_eq!(exporter.clients.len(), 1);
    exporter.serve_at(since + LONGEST, &mut none);
    assert!(exporter.clients.is_empty());
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
}

#[test]
fn a_client_cannot_send_without_end() {
    let mut exporter = exporter();
    let mut stream = send(&exporter, GOOD);
    stream.set_nonblocking(true).unwrap();
    let more = [b'x'; 4096];
    drive(
        &mut exporter,
        "a 1\n",
        |_| matches!(stream.write(&more), Err(error) if error.kind() != ErrorKind::WouldBlock),
    );
    assert!(exporter.clients.is_empty());
}

#[test]
fn after_a_failure_to_accept_the_loop_does_not_spin() {
    let mut exporter = exporter();
    let now = Instant::now();
    exporter.watch_listener(false);
    exporter.paused = Some(now + PAUSE);
    let _stream = send(&exporter, GOOD);
    exporter.serve_at(now, &mut String::new);
    assert!(exporter.clients.is_empty() && !is_ready(&exporter, 0));
    exporter.serve_at(now + PAUSE, &mut String::new);
    assert_eq!(exporter.clients.len(), 1);
    drive(&mut exporter, "", |exporter| is_ready(exporter, 0) || exporter.paused.is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever others send, in whatever pieces, a good request is answered.
    #[test]
    fn no_bytes_stall_it(
        garbage in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..3000), 1..3000_usize, any::<bool>()),
            0..MOST_CLIENTS,
        ),
        start in prop::sample::select(vec![0, 4, 20, GOOD.len()]),
    ) {
        let mut exporter = exporter();
        let mut others = Vec::new();
        for (bytes, piece, stays) in &garbage {
            let mut stream = send(&exporter, &GOOD[..start]);
            for piece in bytes.chunks(*piece) {
                // The connection can have ended.
                let _ = stream.write(piece);
                exporter.serve(&mut || "a 1\n".to_owned());
            }
            others.extend(stays.then_some(stream));
        }
        prop_assert!(response(&mut exporter, "a 1\n").ends_with("\r\n\r\na 1\n"));
        drop(others);
        drive(&mut exporter, "a 1\n", |exporter| exporter.clients.is_empty());
    }
}
