//! The sensor of waiting on this machine's kernel, beside the threads' own clock. They need root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]
#![allow(clippy::print_stderr, reason = "a test says what it skips and measures")]

mod common;

use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use common::{online, own_tree, pin, turn};
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::CgroupSetup;
use gleaner_trace::{LatencySensor, Scope};

/// Turns that each thread of a ping-pong takes.
const ROUNDS: u64 = 1000;
/// By now a vCPU without work has halted: longer than haltpoll polls by default.
const ASLEEP_NS: u64 = 400_000;

/// Two threads take turns on these vCPUs, `ROUNDS` turns each. By their own clock: the median time from before the system
/// call that wakes to after the one that waited.
///
/// They wait on futexes, whose waker holds no lock while it sends its IPI. With a pipe the woken thread would wait for
/// the waker's lock of the wait queue, and so for an exit to the host that lasts 100 us at times, when it runs already.
fn ping_pong(cpus: [usize; 2]) -> Duration {
    let zero = Instant::now();
    let now = move || u64::try_from(zero.elapsed().as_nanos()).unwrap();
    // Whose turn it is and since when.
    let (turn, called) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let play = |player: usize| {
        let (turn, called) = (turn.clone(), called.clone());
        let (to_tell, other) = mpsc::channel::<Thread>();
        let thread = thread::spawn(move || {
            pin(cpus[player]);
            let other = other.recv().unwrap();
            let mut own = Vec::new();
            for _ in 0..ROUNDS {
                let mut waited = false;
                while turn.load(Ordering::Acquire) != player {
                    waited = true;
                    thread::park();
                }
                if waited {
                    own.push(now() - called.load(Ordering::Relaxed));
                }
                // On two vCPUs the other one needs time to halt, also where it polls before.
                while cpus[0] != cpus[1] && now() - called.load(Ordering::Relaxed) < ASLEEP_NS {
                    std::hint::spin_loop();
                }
                called.store(now(), Ordering::Relaxed);
                turn.store(1 - player, Ordering::Release);
                other.unpark();
            }
            own
        });
        (thread, to_tell)
    };
    let players = [play(0), play(1)];
    for (player, other) in [(0, 1), (1, 0)] {
        players[player].1.send(players[other].0.thread().clone()).unwrap();
    }
    let mut own: Vec<u64> = players.into_iter().flat_map(|(thread, _)| thread.join().unwrap()).collect();
    own.sort_unstable();
    Duration::from_nanos(own[own.len() / 2])
}

fn armed(scope: &Scope) -> LatencySensor {
    let mut sensor = LatencySensor::load(scope).unwrap();
    sensor.arm().unwrap();
    sensor
}

/// What lies between the threads' own clock and a latency: the way into the kernel up to the event, and from the switch
/// back to user mode.
const WAYS: Duration = Duration::from_micros(10);

/// The median latency by the sensor, which must be that by the threads' own clock, less the ways.
fn agrees(cpus: [usize; 2]) -> Duration {
    let mut sensor = armed(&own_tree());
    let own = ping_pong(cpus);
    let found = sensor.read().unwrap();
    let median = found.known.median().unwrap();
    assert!(found.wake_ups > ROUNDS / 2, "{found:?}");
    assert!(found.known.count > found.wake_ups - found.wake_ups / 10, "{found:?}");
    let told = format!("{cpus:?}: {median:?}, by the threads' own clock {own:?}");
    eprintln!("{told}");
    assert!(median < own && own.abs_diff(median) < WAYS, "{told}");
    assert!(found.known.quantile(0.99).unwrap() >= median);
    median
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
