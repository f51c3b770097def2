//! What is put in force, and that nothing of it is left.

use std::time::{Duration, Instant, UNIX_EPOCH};

use gleaner_control::WhyRequest;
use gleaner_policy::Method;
use gleaner_proto::journal::Record;
use gleaner_testing::placement::Placement;
use gleaner_testing::server::{Server, redis_benchmark};
use nix::sys::signal::Signal;

use crate::stage::{Redis, Stage};

/// How often a known program is started.
const KNOWN_ROUNDS: usize = 15;

#[test]
fn redis_is_helped_put_back_and_known_at_the_next_start() {
    let Some(stage) = Stage::set("consolidate = false") else { return };
    let daemon = stage.home.start();
    let begin = Instant::now();
    daemon.until_helped("redis");
    eprintln!("\nhelped {:.1} s after the first start", begin.elapsed().as_secs_f64());
    daemon.until("what retains is in the kernel", |_| !stage.is_untouched());
    let asked = WhyRequest { workload: Some("redis".to_owned()), ..WhyRequest::default() };
    let records = daemon.client().why(&asked).unwrap();
    let records: Vec<_> = records.map(|reply| reply.unwrap().record).collect();
    assert!(matches!(records[0], Record::Start { .. }), "{:?}", records[0]);
    let Record::Start { unix_ms, .. } = records[0] else { unreachable!() };
    let decided = records.iter().find_map(|record| match record {
        Record::Decision { at, .. } => Some(UNIX_EPOCH + Duration::from_millis(unix_ms) + *at),
        _ => None,
    });
    let decided = decided.expect("something was decided");
    assert!(decided.elapsed().unwrap() < begin.elapsed(), "since the test began: {decided:?}");
    let log = daemon.stop();
    assert!(log.contains("redis: engaged"), "{log}");
    assert!(!stage.home.socket().exists(), "its socket is left");
    stage.assert_untouched();

    let daemon = stage.home.start();
    let begin = Instant::now();
    daemon.until("what paid before is in force", |daemon| {
        daemon.status().machine.retention.method != Method::Halt
    });
    let soon = begin.elapsed();
    eprintln!("\nin force {:.2} s after the second start", soon.as_secs_f64());
    assert!(soon < Duration::from_secs(3), "{soon:?}: {}", daemon.log());
    daemon.stop();
    stage.assert_untouched();
}

#[test]
fn a_workload_that_vanishes_leaves_nothing_and_can_come_back() {
    let Some(mut stage) = Stage::set("") else { return };
    let daemon = stage.home.start();
    daemon.until_helped("redis");
    stage.redis.client.signal(Signal::SIGKILL);
    stage.redis.client.wait();
    // Its processes and its group, while something is in force for it.
    let Stage { redis, .. } = stage;
    let Redis { server, client, service, .. } = redis;
    drop((server, client));
    service.remove();
    daemon.until("it is released", |daemon| daemon.logged("redis: released") > 0);
    daemon.until("nothing is in force", |_| gleaner_testing::levers::Levers::read() == stage.machine.before);
    let redis = Redis::start(&stage.home, &stage.slice, "redis");
    daemon.until("it is engaged anew", |daemon| daemon.logged("redis: engaged") == 2);
    let log = daemon.stop();
    assert!(!log.contains("could not be put back"), "{log}");
    stage.machine.assert_untouched();
    assert_eq!(redis.placement(), redis.before);
}

/// The daemon runs already when the load of a service begins: for the first time, and again after both were gone.
#[test]
#[ignore = "only measures: docs/reliability.md"]
fn how_soon_after_its_load_begins_a_service_is_helped() {
    let Some(mut stage) = Stage::set("consolidate = false") else { return };
    let daemon = stage.home.start();
    let mut times = Vec::new();
    for round in 0..=KNOWN_ROUNDS {
        let Stage { redis, home, slice, machine } = stage;
        let Redis { server, client, service, .. } = redis;
        drop((client, server));
        service.remove();
        daemon.until("nothing is in force", |_| gleaner_testing::levers::Levers::read() == machine.before);
        let engaged = daemon.logged("redis: engaged");
        let service = slice.service("redis");
        let server = Server::redis(home.path(), "redis", Some(&service));
        let begin = Instant::now();
        let client = redis_benchmark(&server, Some(&service));
        daemon.until("the kernel retains", |_| gleaner_testing::levers::Levers::read() != machine.before);
        times.push(begin.elapsed());
        daemon.until("it is engaged", |daemon| daemon.logged("redis: engaged") > engaged);
        daemon.until_helped("redis");
        eprintln!(
            "round {round}: retains after {:.3} s, proven after {:.1} s",
            times[round].as_secs_f64(),
            begin.elapsed().as_secs_f64()
        );
        let before = Placement::read([&service], [server.pid()]);
        stage = Stage { redis: Redis { server, client, service, before }, home, slice, machine };
    }
    let known = &mut times[1..];
    known.sort();
    eprintln!("known: median {:?}, longest {:?}", known[known.len() / 2], known[known.len() - 1]);
    daemon.stop();
    stage.machine.assert_untouched();
}
