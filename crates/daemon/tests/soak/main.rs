//! Changing loads and faults for a long time: the daemon does not crash, does not grow, puts every lever back, and never
//! overwrites what an administrator has written.
//!
//! The first half measures growth, so one daemon lives through it; in the second half daemons are killed, too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test says what it measures")]

#[path = "../common/mod.rs"]
mod common;

mod clients;
mod faults;
mod world;

use std::time::{Duration, Instant};

use common::Machine;
use gleaner_testing::levers::LIMIT;
use gleaner_testing::server::has_programs;

use faults::Fault;
use world::{AtRest, World};

/// For how many seconds, unless this variable says it.
const SECONDS: (&str, u64) = ("GLEANER_SOAK_S", 180);
/// Between two steps, in each of which groups come and go.
const STEP: Duration = Duration::from_millis(250);
/// So many groups a step are twenty a second.
const GROUPS_A_STEP: u32 = 5;
/// Steps from fault to fault.
const STEPS_A_FAULT: u32 = 6;
/// Faults from a daemon's start to its end, in the second half.
const FAULTS_A_LIFE: u32 = 5;
/// Measurements of the daemon at rest.
const RESTS: u32 = 5;
/// The most that resident memory grows, once each kind of fault has happened.
const MOST_GROWTH: f64 = 0.05;

/// Lives through faults until `end`, or until `faults` have happened.
fn live(world: &mut World, end: Instant, faults: u32) {
    let mut step = 0;
    while Instant::now() < end && step < faults.saturating_mul(STEPS_A_FAULT) {
        if step % STEPS_A_FAULT == 0 {
            world.suffer(Fault::nth(step / STEPS_A_FAULT));
        }
        world.churn(GROUPS_A_STEP);
        world.change_loads();
        world.check();
        step += 1;
        std::thread::sleep(STEP);
    }
}

/// The daemon at rest, the smallest of a few times: what the allocator keeps for a moment goes up and down.
fn level(world: &mut World) -> AtRest {
    let mut least = world.at_rest();
    for _ in 1..RESTS {
        live(world, Instant::now() + STEP * STEPS_A_FAULT, 1);
        let next = world.at_rest();
        least = AtRest { resident: least.resident.min(next.resident), files: least.files.max(next.files) };
    }
    least
}

#[test]
fn a_long_time_of_loads_and_faults() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    if !has_programs(&["redis-server", "memcached"]) {
        return;
    }
    let seconds = std::env::var(SECONDS.0).map_or(SECONDS.1, |text| text.parse().unwrap());
    let (begin, time) = (Instant::now(), Duration::from_secs(seconds));
    let Some(mut world) = World::new(&machine) else { return };

    world.start();
    // Every kind once: what is then allocated may stay.
    live(&mut world, begin + time / 2, u32::try_from(Fault::ALL.len()).unwrap());
    let first = level(&mut world);
    live(&mut world, begin + time / 2, u32::MAX);
    let last = level(&mut world);
    world.end();
    let growth = last.resident as f64 / first.resident as f64 - 1.0;

    let mut lives = 0;
    while Instant::now() < begin + time {
        world.start();
        live(&mut world, begin + time, FAULTS_A_LIFE);
        lives += 1;
        if lives % 3 == 0 { world.end() } else { world.kill() }
    }
    eprintln!(
        "\nsoak of {seconds} s: {}; resident {} KiB, then {} KiB ({:+.1} %); {} files, then {}",
        world.tally,
        first.resident / 1024,
        last.resident / 1024,
        growth * 100.0,
        first.files,
        last.files
    );
    assert!(world.tally.engaged > 0, "nothing was engaged");
    drop(world);
    std::fs::write(LIMIT, machine.limit_before().trim()).unwrap();
    machine.assert_untouched();
    assert_eq!(last.files, first.files, "files were left open");
    assert!(growth < MOST_GROWTH, "it grew by {:.1} %", growth * 100.0);
}
