//! The sensor of waiting on this machine's kernel: beside the tracer, which sees both ends of each wake-up as events. They
//! need root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{ROUNDS, online, own_tree, pin, turn, unlimited};
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::CgroupSetup;
use gleaner_trace::{Latencies, LatencySensor, Part, Parts, Scope, Tracer};

/// Two threads hand a byte to and fro, `ROUNDS` times each way, on these vCPUs.
fn ping_pong(cpus: [usize; 2]) {
    let (a, b) = UnixStream::pair().unwrap();
    let play = |mut stream: UnixStream, cpu, begins| {
        thread::spawn(move || {
            pin(cpu);
            let mut byte = [0];
            for round in 0..=ROUNDS {
                if !(begins && round == 0) {
                    stream.read_exact(&mut byte).unwrap();
                }
                // On two vCPUs the other one needs time to fall asleep.
                let end = Instant::now() + Duration::from_micros(30);
                while cpus[0] != cpus[1] && Instant::now() < end {
                    std::hint::spin_loop();
                }
                // Who is done has nobody to write to.
                if stream.write_all(&byte).is_err() {
                    return;
                }
            }
        })
    };
    let threads = [play(a, cpus[0], true), play(b, cpus[1], false)];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn armed(scope: &Scope) -> LatencySensor {
    let mut sensor = LatencySensor::load(scope).unwrap();
    sensor.arm().unwrap();
    sensor
}

/// What the sensor and the tracer say about a ping-pong between two vCPUs: counts, and the means in ns.
fn both(cpus: [usize; 2]) -> (Latencies, [u64; 2], [Duration; 2]) {
    let tracer = Tracer::start_within(unlimited(), &own_tree(), &Parts::of([Part::Idle])).unwrap();
    let mut sensor = armed(&own_tree());
    ping_pong(cpus);
    let found = sensor.read().unwrap();
    let wakes = tracer.snapshot().unwrap().wakes;
    let traced = wakes.same_vcpu.plus(&wakes.awake).plus(&wakes.polling).plus(&wakes.halted);
    let (counts, means) = ([found.known.count, traced.count], [found.known.mean(), traced.mean()]);
    (found, counts, means)
}

/// The sensor looks at one event and at what the scheduler notes, the tracer at both events.
fn agrees(cpus: [usize; 2]) -> Duration {
    let (found, [known, traced], [mean, tracers]) = both(cpus);
    eprintln!("{cpus:?}: {known} known of {} of {traced}; mean {mean:?}, traced {tracers:?}", found.wake_ups);
    // This thread and those that keep the tracer's budget are woken a few times, too, while only one of both looks.
    assert!(known.abs_diff(traced) <= traced / 10, "{known} of {traced}");
    assert!(known <= found.wake_ups && found.wake_ups - known <= found.wake_ups / 10, "{found:?}");
    let apart = mean.abs_diff(tracers);
    assert!(apart <= Duration::from_micros(1) || apart <= tracers / 10, "{mean:?}, traced {tracers:?}");
    assert!(found.known.quantile(0.99).unwrap() >= found.known.median().unwrap());
    mean
}

#[test]
fn latencies_are_those_between_the_two_events() {
    let Some(_turn) = turn() else { return };
    let same = agrees([0, 0]);
    if online() < 2 {
        eprintln!("SKIPPED: needs two vCPUs");
        return;
    }
    let across = agrees([0, 1]);
    assert!(across > 3 * same, "a halted vCPU has to be woken: {across:?}, on the waker's own {same:?}");
}

#[test]
fn nothing_is_seen_while_disarmed_and_nothing_of_it_later() {
    let Some(_turn) = turn() else { return };
    let mut sensor = LatencySensor::load(&own_tree()).unwrap();
    assert_eq!(sensor.read(), None);
    sensor.arm().unwrap();
    ping_pong([0, 0]);
    assert!(sensor.read().unwrap().wake_ups > ROUNDS / 2);
    sensor.disarm();
    ping_pong([0, 0]);
    assert_eq!(sensor.read(), None);
    sensor.arm().unwrap();
    let few = sensor.read().unwrap();
    assert!(few.wake_ups < 50, "{few:?}");
    sensor.detach();
    assert_eq!(sensor.read(), None);
    sensor.arm().unwrap();
    ping_pong([0, 0]);
    assert!(sensor.read().unwrap().wake_ups > ROUNDS / 2);
}

#[test]
fn others_are_not_counted() {
    let Some(_turn) = turn() else { return };
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let mut sensor = armed(&Scope::Tree(child.id()));
    ping_pong([0, 0]);
    let found = sensor.read().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found.wake_ups, 0);
}

#[test]
fn a_control_group_is_a_scope_in_each_hierarchy() {
    let Some(_turn) = turn() else { return };
    let setup = CgroupSetup::detect(&Root::system()).unwrap();
    let v1 = ["cpuset", "cpu"].iter().filter_map(|name| setup.v1.get(*name));
    for hierarchy in v1.chain(&setup.v2) {
        let mut sensor = armed(&Scope::Cgroup(hierarchy.own.clone()));
        ping_pong([0, 0]);
        let found = sensor.read().unwrap();
        assert!(found.wake_ups > ROUNDS / 2, "{}: {found:?}", hierarchy.own.display());
        assert!(found.known.count > found.wake_ups / 2, "{found:?}");
    }
}
