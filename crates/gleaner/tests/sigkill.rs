//! After SIGKILL at any instant, `gleaner restore` returns the machine to exactly its earlier state.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use common::levers::{LEASES, LIMIT, Levers, Machine, limit_is};
use common::process::{GLEANER, Running, command, gleaner, text, until};
use gleaner_proto::lease::{self, LeaseRecord};
use nix::sys::signal::Signal;

const KILLS: usize = 50;
/// Seed of the random instants, so that a failure can be repeated.
const SEED: u64 = 0x5eed_0123_4567_89ab;
/// Longest delay from the start to SIGKILL: the instants fall before, during and after the first trials.
const SPAN: Duration = Duration::from_millis(600);

/// Evenly distributed instants within [`SPAN`] (xorshift64).
fn instants() -> impl Iterator<Item = Duration> {
    let mut state = SEED;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        SPAN.mul_f64((state >> 11) as f64 / (1_u64 << 53) as f64)
    })
}

/// Number of leases in the lease file.
fn leases() -> usize {
    let path = Path::new(LEASES);
    if !path.exists() {
        return 0;
    }
    let mut open = BTreeSet::new();
    for record in lease::read(path).unwrap().map(|(_, records)| records).unwrap_or_default() {
        match record {
            LeaseRecord::Change { target, .. } => drop(open.insert(target)),
            LeaseRecord::Released { target } => drop(open.remove(&target)),
            LeaseRecord::Holder { .. } => {}
        }
    }
    open.len()
}

#[test]
fn after_sigkill_at_fifty_instants_restore_brings_everything_back() {
    let Some(machine) = Machine::take() else { return };
    // The first run measures this boot's wake-up costs, so it takes longer to start.
    assert!(gleaner(&["run", "--quiet", "--", "true"]).status.success());
    let args = ["run", "--quiet", "--", GLEANER, "workload", "request-response", "--seconds", "5"];
    let (mut leased, mut grouped, mut turned) = (0, 0, 0);
    for instant in instants().take(KILLS) {
        let mut run = Running::start(&mut command(&args));
        thread::sleep(instant);
        run.signal(Signal::SIGKILL);
        run.wait();
        let left = Levers::read();
        leased += usize::from(leases() > 0);
        grouped += usize::from(left.groups != machine.before.groups);
        turned += usize::from(left.knobs != machine.before.knobs);
        // Ends the workload, which outlives its Gleaner.
        drop(run);
        let output = gleaner(&["restore"]);
        assert!(output.status.success(), "killed after {instant:?}: {}", text(&output.stderr));
        machine.assert_untouched();
    }
    eprintln!("of {KILLS} kills {leased} found leases in force, {grouped} a group, {turned} a knob turned");
    assert!(leased > 0 && grouped > 0, "no kill hit a moment that mattered");
}

#[test]
fn what_somebody_else_changed_after_the_kill_stays_theirs() {
    const THEIRS: &str = "123456";
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let mut run = Running::start(&mut command(&["run", "--quiet", "--fixed", "haltpoll:200us", "--", "cat"]));
    until("the limit is in force", || limit_is("200000"));
    run.signal(Signal::SIGKILL);
    run.wait();
    drop(run);
    fs::write(LIMIT, THEIRS).unwrap();
    let output = gleaner(&["restore"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains(&format!("{LIMIT} is {THEIRS}, changed by somebody else")));
    let mut expected = machine.before.clone();
    expected.knobs.insert(LIMIT.into(), format!("{THEIRS}\n"));
    assert_eq!(Levers::read(), expected);
    fs::write(LIMIT, machine.limit_before().trim()).unwrap();
    machine.assert_untouched();
}
