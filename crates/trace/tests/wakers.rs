//! Compares the count of who wakes whom with what two processes do. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use common::{turn, until_asleep};
use gleaner_trace::lazy::count_wakers;
use gleaner_trace::{WakerSensor, Wakeups};

/// Round trips with the other process, which sleeps before each.
const ROUND_TRIPS: u64 = 200;

/// Sends a byte to a process that sends it back, again and again; its PID.
fn echo() -> u32 {
    let mut other = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, mut from) = (other.stdin.take().unwrap(), other.stdout.take().unwrap());
    for _ in 0..ROUND_TRIPS {
        until_asleep(other.id());
        to.write_all(b".").unwrap();
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
    // It sleeps before each byte, and once more at the end of the file.
    let woken = number(&counted, own, other);
    assert!((ROUND_TRIPS..ROUND_TRIPS + 20).contains(&woken), "{counted:?}");
    assert!(number(&counted, other, own) <= ROUND_TRIPS + 20, "{counted:?}");
    assert!(counted.iter().all(|w| w.wakee != before), "{counted:?}");
    assert!(counted.is_sorted_by_key(|w| std::cmp::Reverse(w.number)), "{counted:?}");
}

#[test]
fn a_count_in_the_background_ends_by_itself() {
    let Some(_turn) = turn() else { return };
    let mut count = count_wakers(std::time::Duration::from_millis(200)).unwrap();
    assert!(count.advance().unwrap().is_none(), "it does not block");
    let begin = Instant::now();
    let mut others = Vec::new();
    let counted = loop {
        others.push(echo());
        if let Some(counted) = count.advance().unwrap() {
            break counted;
        }
    };
    let woken: u64 = others.iter().map(|pid| number(&counted, std::process::id(), *pid)).sum();
    assert!(woken > 0, "{:?}: {counted:?}", begin.elapsed());
    assert!(count.advance().is_err());
}
