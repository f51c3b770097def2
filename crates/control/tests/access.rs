//! Who is allowed to use what, and whose socket it is.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use common::{Daemon, Setup};
use gleaner_control::{BindError, Client, ClientError, Error, Event, Server, WhyRequest};

/// A group that every Debian system has, and its number.
const GROUP: (&str, u32) = ("daemon", 1);
const NOBODY: u32 = 65534;

/// Does something as another user. The kernel's identities are those of a thread.
fn as_user<T: Send>(uid: u32, gid: u32, groups: &[u32], what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let become_user = || {
            // SAFETY: the system calls take numbers and a list of as many numbers as they are given.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
            }
            what()
        };
        scope.spawn(become_user).join().unwrap()
    })
}

/// A daemon whose directory everybody can enter.
fn daemon(group: Option<&'static str>) -> Option<Daemon> {
    if !gleaner_testing::is_root() {
        return None;
    }
    let daemon = Daemon::with(Setup { group, ..Setup::default() });
    fs::set_permissions(daemon.dir.path(), Permissions::from_mode(0o755)).unwrap();
    Some(daemon)
}

fn denied<T: std::fmt::Debug>(result: Result<T, ClientError>) -> String {
    match result {
        Err(ClientError::Refused(Error::PermissionDenied { reason })) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn members_of_the_group_read_and_root_changes() {
    let Some(daemon) = daemon(Some(GROUP.0)) else { return };
    let found = fs::metadata(&daemon.path).unwrap();
    assert_eq!((found.mode() & 0o777, found.gid(), found.uid()), (0o660, GROUP.1, 0));
    assert_eq!(daemon.note, None);
    // The group as the process's own and as one of many supplementary ones.
    let many: Vec<u32> = (1000..1200).chain([GROUP.1]).collect();
    for (gid, groups) in [(GROUP.1, &[][..]), (NOBODY, &many)] {
        as_user(NOBODY, gid, groups, || {
            let mut client = Client::connect(&daemon.path).unwrap();
            client.status().unwrap();
            client.metrics().unwrap();
            let reason = denied(client.pause(None));
            assert!(reason.contains("`Pause` is for root") && reason.contains("user 65534"), "{reason}");
            for refused in [client.resume(), client.detach("a")] {
                denied(refused);
            }
            denied(client.forget(None));
            denied(client.reload());
            let request = gleaner_control::AttachRequest { name: Some("a".into()), ..Default::default() };
            denied(Client::connect(&daemon.path).unwrap().attach(&request).unwrap().next().unwrap());
            assert_eq!(client.why(&WhyRequest::default()).unwrap().map(Result::unwrap).count(), 4);
        });
    }
    daemon.until("all are logged", |seen| seen.refusals.len() >= 10);
    let seen = daemon.seen();
    assert!(seen.refusals[0].contains("user 65534 (pid "), "{:?}", seen.refusals);
    assert!(
        seen.refusals[0].ends_with("has no right to use io.gleaner.Control.Pause"),
        "{:?}",
        seen.refusals
    );
    assert_eq!((seen.paused.as_ref(), seen.calls.get("Pause")), (None, None));
}

#[test]
fn everybody_else_is_kept_out_by_the_kernel_and_by_the_server() {
    let Some(daemon) = daemon(Some(GROUP.0)) else { return };
    let error = as_user(NOBODY, NOBODY, &[], || Client::connect(&daemon.path).unwrap_err());
    assert!(matches!(error, ClientError::NotAllowed { .. }), "{error}");
    assert!(error.to_string().contains("be root, or in the group `gleaner`"), "{error}");
    // Whatever somebody did to its mode.
    fs::set_permissions(&daemon.path, Permissions::from_mode(0o666)).unwrap();
    as_user(NOBODY, NOBODY, &[2, 3], || {
        let mut client = Client::connect(&daemon.path).unwrap();
        let reason = denied(client.status());
        assert!(reason.contains("root and the members of its group"), "{reason}");
        denied(client.pause(None));
    });
    assert!(daemon.seen().calls.is_empty());
}

#[test]
fn without_the_group_it_is_roots_alone_and_a_sentence_says_so() {
    let Some(daemon) = daemon(Some("no-such-group-here")) else { return };
    let note = daemon.note.as_deref().unwrap();
    assert!(note.contains("only root") && note.contains("groupadd --system no-such-group-here"), "{note}");
    let found = fs::metadata(&daemon.path).unwrap();
    assert_eq!((found.mode() & 0o777, found.gid()), (0o660, 0));
    daemon.client().status().unwrap();
}

fn serve_nothing(path: &Path) -> Server {
    Server::bind(path, None).unwrap().0
}

#[test]
fn a_dead_daemons_socket_is_replaced_and_a_live_ones_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "as after SIGKILL");
    let server = serve_nothing(&path);
    let error = Server::bind(&path, None).unwrap_err();
    assert!(
        matches!(error, BindError::Live { pid, .. } if pid == std::process::id().cast_signed()),
        "{error}"
    );
    assert!(error.to_string().contains("systemctl stop gleanerd"), "{error}");
    drop(server);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn only_an_own_socket_is_removed_and_no_other_file_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    let server = serve_nothing(&path);
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket(), "somebody else's stays");
    drop(other);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "text").unwrap();
    assert!(matches!(Server::bind(&path, None), Err(BindError::Occupied { .. })));
    let missing = Server::bind(&dir.path().join("no/control.sock"), None).unwrap_err();
    assert!(missing.to_string().contains("no/control.sock: No such file"), "{missing}");
}

#[test]
fn a_socket_of_systemds_is_served_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    let (mut server, note) = Server::inherit(UnixListener::bind(&path).unwrap(), None).unwrap();
    assert_eq!(note, None);
    let asked = std::thread::spawn({
        let path = path.clone();
        move || Client::connect(&path).unwrap().metrics()
    });
    let call = loop {
        if let Some(Event::Call { call, peer }) = server.serve() {
            assert!(peer.can_change());
            break call;
        }
        std::thread::yield_now();
    };
    let gleaner_control::Call::Metrics(to) = call else { panic!("{call:?}") };
    server.answer(to, Ok(gleaner_control::MetricsReply { text: "x".to_owned() }));
    assert_eq!(asked.join().unwrap().unwrap(), "x");
    drop(server);
    assert!(path.exists());
}
