//! What clients of the control socket ask for, and who is allowed to.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use gleaner_control::{AttachRequest, Client, ClientError, Error, Mode, State, WhyRequest};
use gleaner_testing::group::Service;
use gleaner_testing::levers::Levers;
use gleaner_testing::server::{Server, redis_benchmark};
use nix::sys::signal::Signal;

use crate::common::user::{GROUP, NOBODY, as_user};
use crate::common::{Gleanerd, Home, Machine};
use crate::stage::Stage;

fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Error {
    match result {
        Err(ClientError::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// The name under which a service's memory is kept.
fn path(service: &Service) -> String {
    service.path.to_str().unwrap().to_owned()
}

fn state_of_redis(daemon: &Gleanerd) -> Option<(State, Option<String>)> {
    let workloads = daemon.status().workloads;
    workloads.into_iter().find(|w| w.name == "redis").map(|w| (w.state, w.reason))
}

#[test]
fn pause_detach_and_attach_mean_what_they_say() {
    let Some(stage) = Stage::set("") else { return };
    let daemon = stage.home.start();
    daemon.until_helped("redis");
    let mut client = daemon.client();
    client.pause(Some("incident 4711".to_owned())).unwrap();
    assert!(stage.is_untouched(), "{:?} {:?}", Levers::read(), stage.redis.placement());
    let status = client.status().unwrap();
    assert_eq!((status.mode, status.leases), (Mode::Paused, 0));
    assert_eq!(status.mode_reason.as_deref(), Some("incident 4711"));
    let group = stage.redis.service.path.to_str().unwrap().to_owned();
    let asked = AttachRequest { cgroup: Some(group), ..AttachRequest::default() };
    let busy = refused(daemon.client().attach(&asked).unwrap().next().unwrap());
    assert!(busy.to_string().contains("incident 4711"), "{busy}");
    // It outlives the daemon.
    daemon.stop();
    let daemon = stage.home.start();
    let mut client = daemon.client();
    assert_eq!(client.status().unwrap().mode_reason.as_deref(), Some("incident 4711"));
    client.resume().unwrap();
    daemon.until_helped("redis");

    let unknown = refused(client.detach("redsi"));
    assert!(matches!(&unknown, Error::NotFound { nearest: Some(near), .. } if near == "redis"), "{unknown}");
    client.detach("redis").unwrap();
    assert!(stage.is_untouched(), "{:?} {:?}", Levers::read(), stage.redis.placement());
    daemon.until("it is left alone", |daemon| {
        state_of_redis(daemon).is_some_and(|(state, reason)| {
            state == State::LeftAlone && reason.is_some_and(|reason| reason.contains("detached"))
        })
    });

    let mut attached = daemon.client().attach(&asked).unwrap();
    let workload = attached.next().unwrap().unwrap().workload;
    let twice = refused(daemon.client().attach(&asked).unwrap().next().unwrap());
    assert_eq!(twice, Error::AlreadyControlled { workload: workload.clone() });
    daemon.until_helped(&workload);
    attached.hang_up().unwrap().now();
    let last = attached.next().unwrap().unwrap();
    assert_eq!((last.workload, attached.next().is_none()), (workload.clone(), true));
    assert!(last.summary.unwrap().elapsed.as_millis() > 0);
    assert!(stage.is_untouched() && daemon.engaged(&workload).is_none());
    // Nobody is engaged under that name now.
    client.detach("redis").unwrap();
    assert!(state_of_redis(&daemon).is_some_and(|(state, _)| state == State::LeftAlone));

    client.resume().unwrap();
    daemon.until("it is engaged without being asked for", |daemon| daemon.engaged("redis").is_some());
    daemon.stop();
    stage.assert_untouched();
}

#[test]
fn a_process_of_an_engaged_service_is_controlled_once() {
    let Some(stage) = Stage::set("") else { return };
    let daemon = stage.home.start();
    daemon.until_helped("redis");
    let asked = AttachRequest { pid: Some(stage.redis.server.pid()), ..AttachRequest::default() };
    let mut attached = daemon.client().attach(&asked).unwrap();
    let workload = attached.next().unwrap().unwrap().workload;
    assert!(daemon.engaged("redis").is_none() && daemon.engaged(&workload).is_some());
    // The whole would have it twice.
    let whole = AttachRequest { cgroup: Some(path(&stage.redis.service)), ..AttachRequest::default() };
    let refusal = refused(daemon.client().attach(&whole).unwrap().next().unwrap());
    assert_eq!(refusal, Error::AlreadyControlled { workload: workload.clone() });
    daemon.until_helped(&workload);
    assert!(daemon.engaged("redis").is_none());
    attached.hang_up().unwrap().now();
    assert!(attached.last().unwrap().unwrap().summary.is_some());
    daemon.until("the service is engaged again", |daemon| daemon.engaged("redis").is_some());
    daemon.stop();
    stage.assert_untouched();
}

#[test]
fn two_workloads_of_one_name_have_different_names() {
    let Some(stage) = Stage::set("") else { return };
    let daemon = stage.home.start();
    daemon.until_helped("redis");
    let other = stage.slice.service("other");
    let server = Server::redis(stage.home.path(), "other", Some(&other));
    let asked = AttachRequest {
        cgroup: Some(path(&other)),
        name: Some("redis".to_owned()),
        ..AttachRequest::default()
    };
    let mut attached = daemon.client().attach(&asked).unwrap();
    assert_eq!(attached.next().unwrap().unwrap().workload, "redis-2");
    assert!(daemon.engaged("redis").is_some() && daemon.engaged("redis-2").is_some());
    let why = |name: &str| {
        let asked = WhyRequest { workload: Some(name.to_owned()), ..WhyRequest::default() };
        daemon.client().why(&asked).unwrap().next().unwrap().unwrap().workload
    };
    assert_eq!((why("redis"), why("redis-2")), ("redis".to_owned(), "redis-2".to_owned()));
    daemon.client().detach("redis-2").unwrap();
    let end = attached.last().unwrap().unwrap();
    assert!(end.workload == "redis-2" && end.summary.is_some(), "{end:?}");
    assert!(daemon.engaged("redis").is_some() && daemon.engaged("redis-2").is_none());
    daemon.stop();
    stage.assert_untouched();
    drop(server);
}

#[test]
fn what_is_forgotten_is_not_written_again_and_the_rest_is() {
    let Some(mut stage) = Stage::set("") else { return };
    let other = stage.slice.service("other");
    let server = Server::redis(stage.home.path(), "other", Some(&other));
    let daemon = stage.home.start();
    daemon.until_helped("redis");
    // One after the other: two clients that never pause leave nothing idle.
    stage.redis.client.signal(Signal::SIGKILL);
    stage.redis.client.wait();
    let load = redis_benchmark(&server, Some(&other));
    daemon.until_helped("other");
    let (redis, other) = (path(&stage.redis.service), path(&other));
    let mut client = daemon.client();
    assert_eq!(client.forget(Some(redis.clone())).unwrap(), std::slice::from_ref(&redis));
    let again = refused(client.forget(Some(redis)));
    assert!(matches!(again, Error::NotFound { .. }), "{again}");
    // What was learned is saved at the end.
    daemon.stop();
    assert_eq!(stage.home.programs_in_memory(), [other]);
    stage.assert_untouched();
    drop(load);
}

#[test]
fn another_user_reads_at_most_and_every_refusal_is_logged() {
    let Some(machine) = Machine::take() else { return };
    let home = Home::new(&format!("[control]\ngroup = \"{}\"\n", GROUP.0));
    let daemon = home.start();
    let socket = home.socket();

    let stranger = as_user(NOBODY, &[], || Client::connect(&socket));
    assert!(matches!(stranger, Err(ClientError::NotAllowed { .. })), "{stranger:?}");
    let (read, pause) = as_user(NOBODY, &[GROUP.1], || {
        let mut member = Client::connect(&socket).unwrap();
        (member.status(), member.pause(None))
    });
    assert_eq!(read.unwrap().pid, daemon.pid());
    let denied = refused(pause);
    assert!(denied.to_string().contains("is for root, and you are user 65534"), "{denied}");
    daemon.until_logged("65534");

    // Even if somebody opens the socket to everybody.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let logged = daemon.logged("65534");
    let read = as_user(NOBODY, &[], || Client::connect(&socket).and_then(|mut client| client.status()));
    assert!(read.is_err(), "{read:?}");
    daemon.until("that is logged, too", |daemon| daemon.logged("65534") > logged);
    assert_eq!(daemon.status().mode, Mode::Running);
    daemon.stop();
    machine.assert_untouched();
}
