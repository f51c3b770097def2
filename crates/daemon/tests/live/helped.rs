//! What is put in force, and that nothing of it is left.

use std::time::{Duration, Instant, UNIX_EPOCH};

use gleaner_control::WhyRequest;
use gleaner_policy::Method;
use gleaner_proto::journal::Record;
use nix::sys::signal::Signal;

use crate::stage::{Redis, Stage};

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
