//! The fast unfold programs on this machine's kernel. They need root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_policy::{CpuId, CpuSet};
use gleaner_trace::{FastUnfold, UnfoldError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::sched_setaffinity;
use nix::unistd::{Pid, geteuid};

static TURN: Mutex<()> = Mutex::new(());

fn root() -> bool {
    if geteuid().is_root() {
        return true;
    }
    eprintln!("SKIPPED: needs root");
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must run this test: needs root");
    false
}

fn spin_on(cpu: usize, stop: &AtomicBool) {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
    let mut n = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        n = black_box(n.wrapping_mul(3).wrapping_add(1));
    }
}

fn readable(unfold: &FastUnfold, patience: Duration) -> bool {
    let timeout = PollTimeout::try_from(patience).unwrap();
    poll(&mut [PollFd::new(unfold.fd(), PollFlags::POLLIN)], timeout).unwrap() > 0
}

#[test]
fn two_threads_on_one_vcpu_raise_one_event_until_it_is_armed_again() {
    if !root() {
        return;
    }
    let _turn = TURN.lock().unwrap();
    let mut unfold = FastUnfold::load().unwrap();
    let active = CpuSet::first(1);
    let threshold = Duration::from_millis(1);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| spin_on(0, &stop));
        }
        for _ in 0..2 {
            unfold.arm(&active, threshold).unwrap();
            assert!(readable(&unfold, Duration::from_secs(10)), "no event");
            let event = unfold.read().unwrap();
            assert_eq!(event.cpu, CpuId(0));
            assert!(event.waited > threshold, "{event:?}");
            // A second one would have to come within a few time slices.
            assert!(!readable(&unfold, Duration::from_millis(30)));
            assert_eq!(unfold.read(), None);
        }
        unfold.disarm();
        assert!(!readable(&unfold, Duration::from_millis(30)));
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn vcpus_that_are_not_active_are_not_watched() {
    if !root() || thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    let _turn = TURN.lock().unwrap();
    let mut unfold = FastUnfold::load().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| spin_on(0, &stop));
        }
        unfold.arm(&[CpuId(1)].into_iter().collect(), Duration::from_secs(1)).unwrap();
        let end = Instant::now() + Duration::from_millis(100);
        assert!(!readable(&unfold, end - Instant::now()));
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn there_must_be_a_vcpu_to_watch() {
    if !root() {
        return;
    }
    let _turn = TURN.lock().unwrap();
    let mut unfold = FastUnfold::load().unwrap();
    for active in [CpuSet::new(), [CpuId(5000)].into_iter().collect()] {
        let error = unfold.arm(&active, Duration::from_millis(1)).unwrap_err();
        assert!(matches!(error, UnfoldError::NoSuchCpus { .. }), "{error}");
    }
}
