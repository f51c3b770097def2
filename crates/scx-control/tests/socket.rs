//! A server and its clients at a real socket.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gleaner_scx_control::{
    Call, Change, Changed, Client, ClientError, InForce, ListenError, Rules, Server, Stat, Status, meta,
    values,
};
use serde_json::{Value, json};

const TURN: Duration = Duration::from_millis(10);

fn status(rules: Rules) -> Status {
    let stat = Stat {
        name: "stolen".to_owned(),
        unit: "tasks".to_owned(),
        description: "Taken".to_owned(),
        count: 7,
    };
    let options = InForce {
        rules,
        preemption_delay_ns: 500_000,
        urgent_slice_ns: 500_000,
        allowance_ns: 18_000_000,
        placement: "load-conscious".to_owned(),
        symbiosis: true,
        slice_ns: 3_000_000,
    };
    Status { version: "0".to_owned(), sees_kvm: true, options, vms: Vec::new(), stats: vec![stat] }
}

/// Answers at `path` while `clients` runs.
fn serve<T: Send>(path: &Path, clients: impl FnOnce() -> T + Send) -> T {
    let rules = RefCell::new(Rules::PAPER);
    let mut answer = |call| -> Result<Value, String> {
        let now = status(*rules.borrow());
        match call {
            Call::Stats => Ok(values(&now.stats)),
            Call::StatsMeta => Ok(meta(&now.stats)),
            Call::Status => Ok(serde_json::to_value(now).unwrap()),
            Call::Set(Change { rules: Some(to), .. }) => {
                let from = rules.replace(to).to_string();
                let changed =
                    Changed { what: "default rules".to_owned(), pid: None, from, to: to.to_string() };
                Ok(json!([changed]))
            }
            Call::Set(_) => Err("process 42 does not exist".to_owned()),
        }
    };
    let mut server = Server::default();
    server.listen(path).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let found = clients();
            done.store(true, Ordering::Relaxed);
            found
        });
        while !done.load(Ordering::Relaxed) && !clients.is_finished() {
            server.serve(TURN, &mut answer);
        }
        clients.join().unwrap()
    })
}

#[test]
fn a_client_is_answered_and_its_change_is_seen_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/scx.sock");
    serve(&path, || {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only its owner may ask");
        let mut client = Client::connect(&path).unwrap().unwrap();
        assert_eq!(client.pid().unwrap(), std::process::id().cast_signed());
        assert_eq!(client.status().unwrap(), status(Rules::PAPER));
        let change = Change { rules: Some(Rules::OFF), ..Change::default() };
        let changed = client.set(change).unwrap();
        assert_eq!((changed[0].from.as_str(), changed[0].to.as_str()), ("resched-dp,tlb-co", "off"));
        let mut next = Client::connect(&path).unwrap().unwrap();
        assert_eq!(next.status().unwrap().options.rules, Rules::OFF);
        assert_eq!(next.stats().unwrap(), json!({"stolen": 7}));
        assert_eq!(next.stats_meta().unwrap()["Stats"]["fields"]["stolen"]["desc"], "Taken (tasks)");
        let refused = client.set(Change::default()).unwrap_err();
        assert!(matches!(&refused, ClientError::Refused(text) if text == "process 42 does not exist"));
        client.status().unwrap();
    });
    assert!(!path.exists(), "the socket ends with the server");
}

#[test]
fn a_request_in_pieces_is_one_and_two_in_one_piece_are_two() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scx.sock");
    serve(&path, || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(br#"{"req":"#).unwrap();
        std::thread::sleep(TURN * 3);
        stream.write_all(b"\"stats\"}\nnonsense\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), r#"{"args":{"resp":{"stolen":7}},"errno":0}"#);
        let refused = lines.next().unwrap();
        assert!(refused.contains("not a request") && refused.ends_with(r#""errno":22}"#), "{refused}");
    });
}

#[test]
fn nobody_fills_the_memory_nor_takes_all_places() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scx.sock");
    serve(&path, || {
        let mut endless = UnixStream::connect(&path).unwrap();
        endless.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // Fails once it is disconnected.
        let _ = endless.write_all(&vec![b'x'; 1 << 20]);
        let end = endless.read(&mut [0; 1]);
        assert!(matches!(end, Ok(0)) || end.is_err_and(|e| e.kind() != std::io::ErrorKind::WouldBlock));
        let idle: Vec<UnixStream> = (0..50).map(|_| UnixStream::connect(&path).unwrap()).collect();
        Client::connect(&path).unwrap().unwrap().status().unwrap();
        drop(idle);
    });
}

#[test]
fn only_the_socket_of_a_dead_process_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scx.sock");
    assert!(Client::connect(&path).unwrap().is_none(), "there is none yet");
    drop(UnixListener::bind(&path).unwrap());
    assert!(Client::connect(&path).unwrap().is_none(), "nobody answers there");
    let mut server = Server::default();
    server.listen(&path).unwrap();
    let live = Server::default().listen(&path).unwrap_err();
    assert!(matches!(live, ListenError::Live { .. }), "{live}");
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    let occupied = Server::default().listen(&path).unwrap_err().to_string();
    assert!(occupied.contains("is not a socket"), "{occupied}");
    drop(server);
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine", "what somebody else put there stays");
}
