//! Every method, by this crate's own client.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::time::Duration;

use common::{Daemon, Setup, status};
use gleaner_control::{AttachRequest, Client, ClientError, Error, Mode, WhyRequest};
use gleaner_proto::journal::Record;

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Error {
    match result {
        Err(ClientError::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_method_with_one_reply() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    assert_eq!(client.status().unwrap(), status());
    client.pause(Some("maintenance".to_owned())).unwrap();
    let paused = client.status().unwrap();
    assert_eq!((paused.mode, paused.mode_reason.as_deref()), (Mode::Paused, Some("maintenance")));
    client.resume().unwrap();
    assert_eq!(client.status().unwrap().mode, Mode::Running);
    assert_eq!(client.forget(Some("redis".to_owned())).unwrap(), ["redis"]);
    assert_eq!(client.forget(None).unwrap(), ["/bin/a", "/bin/b"]);
    assert_eq!(client.metrics().unwrap(), "# EOF\n");
    let wrong = refused(client.reload());
    assert!(
        matches!(wrong, Error::InvalidConfiguration { .. }) && wrong.to_string().contains("line 3"),
        "{wrong}"
    );
    assert_eq!(refused(client.detach("x")), Error::not_found("workload", "x", None));
    assert_eq!(daemon.seen().refusals, Vec::<String>::new());
}

#[test]
fn why_streams_a_journal_as_it_is() {
    let daemon = Daemon::start();
    let replies = daemon.client().why(&WhyRequest::default()).unwrap();
    let replies: Vec<_> = replies.collect::<Result<_, _>>().unwrap();
    assert_eq!(replies.len(), 4);
    assert!(matches!(&replies[0].record, Record::Start { workload, .. } if workload == "redis-server"));
    assert_eq!(replies[3].record, Record::Note { at: Duration::from_millis(3), text: "note 3".to_owned() });
    let recent = WhyRequest { since_ms: Some(1), ..WhyRequest::default() };
    assert_eq!(daemon.client().why(&recent).unwrap().count(), 3);
    let of = |name: &str| WhyRequest { workload: Some(name.to_owned()), since_ms: None };
    let mut wrong = daemon.client().why(&of("redis")).unwrap();
    let error = refused(wrong.next().unwrap());
    assert_eq!(error.to_string(), "there is no workload `redis`; did you mean `redis-server`?");
    assert!(wrong.next().is_none(), "the first error is the last reply");
    let mut idle = daemon.client().why(&of("idle")).unwrap();
    assert_eq!(refused(idle.next().unwrap()), Error::NothingRecorded {});
}

#[test]
fn a_long_journal_is_read_no_faster_than_its_reader() {
    let daemon = Daemon::with(Setup { journal: 200_000, ..Setup::default() });
    let mut replies = daemon.client().why(&WhyRequest::default()).unwrap();
    replies.next().unwrap().unwrap();
    // Other clients are served meanwhile, and the daemon holds no more than its backlog.
    assert_eq!(daemon.client().status().unwrap(), status());
    let taken = daemon.seen().records;
    assert!(taken < 20_000, "{taken} records were taken from the journal");
    assert_eq!(replies.map(Result::unwrap).count(), 200_000);
}

#[test]
fn watch_reports_at_once_and_then_at_each_interval() {
    let daemon = Daemon::start();
    let start = std::time::Instant::now();
    let mut replies = daemon.client().watch(Duration::from_millis(100)).unwrap();
    for _ in 0..4 {
        assert_eq!(replies.next().unwrap().unwrap().status, status());
    }
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    drop(replies);
    // Whoever hung up is not reported to any more while somebody else watches.
    let mut other = daemon.client().watch(Duration::from_millis(100)).unwrap();
    other.next().unwrap().unwrap();
    let calls = daemon.seen().calls["Status"];
    assert!(other.take(3).all(|reply| reply.is_ok()));
    assert!(daemon.seen().calls["Status"] <= calls + 4, "{:?}", daemon.seen().calls);
}

fn named(name: &str) -> AttachRequest {
    AttachRequest { name: Some(name.to_owned()), ..AttachRequest::default() }
}

#[test]
fn attach_lasts_until_it_is_detached() {
    let daemon = Daemon::start();
    let mut replies = daemon.client().attach(&named("a")).unwrap();
    let first = replies.next().unwrap().unwrap();
    assert_eq!((first.workload.as_str(), first.limits.len(), first.summary), ("a", 1, None));
    assert_eq!(daemon.seen().attached, ["a"]);
    let again = refused(daemon.client().attach(&named("a")).unwrap().next().unwrap());
    assert!(matches!(again, Error::AlreadyControlled { .. }), "{again}");
    daemon.client().detach("a").unwrap();
    let last = replies.next().unwrap().unwrap();
    assert_eq!(last.summary.unwrap().proven, 2);
    assert!(replies.next().is_none());
    let unsupported = refused(daemon.client().attach(&AttachRequest::default()).unwrap().next().unwrap());
    assert!(matches!(unsupported, Error::NotSupported { .. }), "{unsupported}");
}

#[test]
fn hanging_up_detaches_and_the_summary_still_arrives() {
    let daemon = Daemon::start();
    let mut replies = daemon.client().attach(&named("a")).unwrap();
    replies.next().unwrap().unwrap();
    replies.hang_up().unwrap().now();
    assert_eq!(replies.next().unwrap().unwrap().summary.unwrap().proven, 2);
    daemon.until("detached", |seen| seen.attached.is_empty());
}

#[test]
fn a_caller_that_dies_detaches() {
    let daemon = Daemon::start();
    for _ in 0..3 {
        let mut replies = daemon.client().attach(&named("a")).unwrap();
        replies.next().unwrap().unwrap();
        drop(replies);
        daemon.until("detached", |seen| seen.attached.is_empty());
    }
}

#[test]
fn a_client_says_what_to_do_without_a_daemon() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let mut attached = daemon.client().attach(&named("a")).unwrap();
    attached.next().unwrap().unwrap();
    let path = daemon.stop();
    let lost = client.status().unwrap_err();
    assert!(matches!(lost, ClientError::Closed { .. }), "{lost}");
    assert!(matches!(attached.next(), Some(Err(ClientError::Closed { .. }))));
    let error = Client::connect(&path).unwrap_err();
    assert!(error.to_string().contains("systemctl start gleanerd"), "{error}");
    // As a daemon leaves it that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path));
    assert!(matches!(Client::connect(&path), Err(ClientError::NotRunning { .. })));
}
