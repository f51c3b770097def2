//! Counts of the waiting sensor on this machine's kernel; latency.rs tests the latencies. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::process::Command;

use common::{own_tree, ping_pong, turn, until_asleep};
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::CgroupSetup;
use gleaner_trace::{Latencies, LatencySensor, Scope};

fn armed(scope: &Scope) -> LatencySensor {
    let mut sensor = LatencySensor::load(scope).unwrap();
    sensor.arm().unwrap();
    sensor
}

/// Asserts that the sensor counted the known number of wake-ups; other threads of the test program are woken a few
/// times.
fn assert_counted(found: &Latencies, slept: u64) {
    assert!(found.wake_ups.abs_diff(slept) <= slept / 20, "{found:?}, slept {slept} times");
}

#[test]
fn nothing_is_seen_while_disarmed_and_nothing_of_it_later() {
    let Some(_turn) = turn() else { return };
    let mut sensor = LatencySensor::load(&own_tree()).unwrap();
    assert_eq!(sensor.read(), None);
    sensor.arm().unwrap();
    let slept = ping_pong("armed", [0, 0]);
    assert_counted(&sensor.read().unwrap(), slept);
    sensor.disarm();
    ping_pong("disarmed", [0, 0]);
    assert_eq!(sensor.read(), None);
    sensor.arm().unwrap();
    let few = sensor.read().unwrap();
    assert!(few.wake_ups < slept / 20, "{few:?}");
    sensor.detach();
    assert_eq!(sensor.read(), None);
    sensor.arm().unwrap();
    let slept = ping_pong("again", [0, 0]);
    assert_counted(&sensor.read().unwrap(), slept);
}

#[test]
fn others_are_not_counted() {
    let Some(_turn) = turn() else { return };
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    until_asleep(child.id());
    let mut sensor = armed(&Scope::Tree(child.id()));
    ping_pong("others", [0, 0]);
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
        let slept = ping_pong("group", [0, 0]);
        let found = sensor.read().unwrap();
        // Other processes can be in the group, and be woken while the counters of the vCPUs are read one by one.
        assert!(found.wake_ups >= slept * 19 / 20, "{}: {found:?}, {slept}", hierarchy.own.display());
        assert!(found.known.count > 0 && found.known.count <= found.wake_ups + slept / 20, "{found:?}");
    }
}
