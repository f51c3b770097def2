//! The sensor of waiting on this machine's kernel, beside the threads' own clock and beside the tracer. They need root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{online, own_tree, pin, turn, unlimited};
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::CgroupSetup;
use gleaner_trace::{LatencySensor, Parts, Scope, Tracer};

/// Round trips of a ping-pong.
const ROUNDS: u64 = 1000;
/// By now a vCPU without work has halted: longer than haltpoll polls by default.
const ASLEEP_NS: u64 = 400_000;

/// Two threads hand a byte to and fro, `ROUNDS` times each way, on these vCPUs. By their own clock: the mean time from
/// before the system call that wakes to after the one that waited.
fn ping_pong(cpus: [usize; 2]) -> Duration {
    let (a, b) = UnixStream::pair().unwrap();
    let (zero, called, sum) = (Instant::now(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let play = |mut stream: UnixStream, cpu, begins| {
        let (called, sum) = (called.clone(), sum.clone());
        let now = move || u64::try_from(zero.elapsed().as_nanos()).unwrap();
        thread::spawn(move || {
            pin(cpu);
            let mut byte = [0];
            for round in 0..=ROUNDS {
                if !(begins && round == 0) {
                    // Who is done has closed its end.
                    if stream.read(&mut byte).unwrap() == 0 {
                        return;
                    }
                    sum.fetch_add(now() - called.load(Ordering::Acquire), Ordering::Relaxed);
                }
                // On two vCPUs the other one needs time to halt, also where it polls before.
                while cpus[0] != cpus[1] && now() - called.load(Ordering::Relaxed) < ASLEEP_NS {
                    std::hint::spin_loop();
                }
                called.store(now(), Ordering::Release);
                if stream.write_all(&byte).is_err() {
                    return;
                }
            }
        })
    };
    let threads = [play(a, cpus[0], true), play(b, cpus[1], false)];
    for thread in threads {
        thread.join().unwrap();
    }
    Duration::from_nanos(sum.load(Ordering::Relaxed) / (2 * ROUNDS))
}

fn armed(scope: &Scope) -> LatencySensor {
    let mut sensor = LatencySensor::load(scope).unwrap();
    sensor.arm().unwrap();
    sensor
}

/// What lies between the threads' own clock and a latency: the way into the kernel up to the event, and from the switch
/// back to user mode.
const WAYS: Duration = Duration::from_micros(10);

/// The mean latency by the sensor, which must be that by the threads' own clock, less the ways.
fn agrees(cpus: [usize; 2]) -> Duration {
    let mut sensor = armed(&own_tree());
    let own = ping_pong(cpus);
    let found = sensor.read().unwrap();
    let mean = found.known.mean();
    assert!(found.wake_ups > ROUNDS, "{found:?}");
    assert!(found.known.count > found.wake_ups - found.wake_ups / 10, "{found:?}");
    assert!(
        mean < own && own.abs_diff(mean) < WAYS.max(own / 5),
        "{cpus:?}: {mean:?}, by the threads' own clock {own:?}"
    );
    assert!(found.known.quantile(0.99).unwrap() >= found.known.median().unwrap());
    mean
}

#[test]
fn latencies_are_those_that_the_threads_see() {
    let Some(_turn) = turn() else { return };
    let same = agrees([0, 0]);
    if online() < 2 {
        eprintln!("SKIPPED: needs two vCPUs");
        return;
    }
    let across = agrees([0, 1]);
    assert!(across > 3 * same, "a halted vCPU has to be woken: {across:?}, on the waker's own {same:?}");
}

/// The tracer sees both ends of a wake-up as events, the sensor one, and what the scheduler notes. One after the other:
/// each puts its programs between the other's two moments.
#[test]
fn the_tracer_finds_the_same() {
    let Some(_turn) = turn() else { return };
    let mut sensor = armed(&own_tree());
    ping_pong([0, 0]);
    let found = sensor.read().unwrap().known.median().unwrap();
    drop(sensor);
    let tracer = Tracer::start_within(unlimited(), &own_tree(), &Parts::of([])).unwrap();
    ping_pong([0, 0]);
    let between = tracer.snapshot().unwrap().wakes.same_vcpu.median().unwrap();
    eprintln!("{found:?}, traced {between:?}");
    assert!(found < 2 * between && between < 4 * found, "{found:?}, traced {between:?}");
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
