//! Compares the count of who wakes whom with what two processes do. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{turn, until_asleep};
use gleaner_trace::lazy::count_wakers;
use gleaner_trace::{WakerSensor, Wakeups};
use nix::unistd::gettid;

/// Round trips with the other process, which sleeps before each.
const ROUND_TRIPS: u64 = 200;

/// Sends a line to a process that sends one back, again and again; its PID. Each sleeps before the other one sends.
fn echo() -> u32 {
    const ANSWER: &str = "while read -r _; do until grep -q '^State:.S' $0; do :; done; echo; done";
    let own = format!("/proc/{}/task/{}/status", std::process::id(), gettid());
    let mut other = Command::new("sh");
    let other = other.args(["-c", ANSWER, &own]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = other.spawn().unwrap();
    let (mut to, mut from) = (other.stdin.take().unwrap(), other.stdout.take().unwrap());
    for _ in 0..ROUND_TRIPS {
        until_asleep(other.id());
        to.write_all(b"\n").unwrap();
        from.read_exact(&mut [0]).unwrap();
    }
    let pid = other.id();
    drop(to);
    other.wait().unwrap();
    pid
}

fn number(counted: &[Wakeups], by: u32, of: u32) -> u64 {
    counted.iter().filter(|w| (w.waker, w.wakee) == (by, of)).map(|w| w.number).sum()
}

#[test]
fn two_processes_wake_each_other() {
    let Some(_turn) = turn() else { return };
    let mut sensor = WakerSensor::load().unwrap();
    let before = echo();
    sensor.start().unwrap();
    let other = echo();
    let counted = sensor.stop();
    let own = std::process::id();
    // It sleeps once more, at the end of the file.
    let (woken, answered) = (number(&counted, own, other), number(&counted, other, own));
    let all = ROUND_TRIPS..ROUND_TRIPS + 20;
    assert!(all.contains(&woken) && all.contains(&answered), "{counted:?}");
    assert!(counted.iter().all(|w| w.wakee != before), "{counted:?}");
}

#[test]
fn a_count_in_the_background_ends_by_itself() {
    let Some(_turn) = turn() else { return };
    let span = Duration::from_millis(200);
    let mut count = count_wakers(span).unwrap();
    let start = Instant::now();
    let mut others = Vec::new();
    let counted = loop {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
        others.push(echo());
        if let Some(counted) = count.advance().unwrap() {
            break counted;
        }
    };
    let woken: u64 = others.iter().map(|pid| number(&counted, std::process::id(), *pid)).sum();
    assert!(woken > 0 && start.elapsed() >= span, "{:?}: {counted:?}", start.elapsed());
    assert!(count.advance().is_err());
}
