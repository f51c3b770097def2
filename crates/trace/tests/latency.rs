//! Traced wake-up latencies beside a clock of the threads' own. They need root.
//!
//! The threads read `CLOCK_MONOTONIC` before the system call that wakes and after the one that waited. Between the two
//! lie three parts: the waker's way into the kernel up to the event `sched_waking`; the wake-up as it is traced, up to
//! `sched_switch`; and the wakee's way from there back to user mode. The events' own times, which the recorder tells,
//! part them.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]
#![allow(clippy::print_stderr, reason = "a test says what it skips and measures")]
#![allow(clippy::similar_names, reason = "waker and wakee are the words for them")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::{online, own_tree, pin, turn, unlimited};
use gleaner_trace::{Histogram, Part, Parts, Recorder, Seen, SeenWhat, Someone, Tracer, Wakes};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::gettid;

const WAKES: usize = 4000;
/// So many wake-ups must have both events. On one vCPU a busy machine has the waker come too early for many: a thread
/// that is not asleep yet needs no wake-up. That no event was lost, the recorder tells.
const FOUND: usize = WAKES / 2;

fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap().into()
}

fn spin_for(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

/// Has a thread on `wakee`'s vCPU wait, and one on `waker`'s wake it, `WAKES` times. The wakee's number, and when each
/// wake-up began and ended by the threads' clock.
fn game(waker: usize, wakee: usize) -> (u32, Vec<(Duration, Duration)>) {
    let (called, tid) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU32::new(0)));
    let (ready, done) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let waits = {
        let (called, tid, ready, done) = (called.clone(), tid.clone(), ready.clone(), done.clone());
        thread::spawn(move || {
            pin(wakee);
            tid.store(gettid().as_raw().unsigned_abs(), Ordering::Release);
            ready.wait();
            let mut seen = Vec::with_capacity(WAKES);
            while seen.len() < WAKES {
                called.store(0, Ordering::Release);
                thread::park();
                let end = now();
                let begin = Duration::from_nanos(called.load(Ordering::Acquire));
                if !begin.is_zero() {
                    seen.push((begin, end));
                }
            }
            done.store(true, Ordering::Release);
            seen
        })
    };
    pin(waker);
    ready.wait();
    while !done.load(Ordering::Acquire) {
        while called.load(Ordering::Acquire) != 0 && !done.load(Ordering::Acquire) {
            thread::yield_now();
        }
        if waker == wakee {
            // It can only fall asleep where this thread lets it.
            (0..3).for_each(|_| thread::yield_now());
        }
        // Long enough to fall asleep, and to reach the hypervisor.
        spin_for(Duration::from_micros(20));
        called.store(ns(now()), Ordering::Release);
        waits.thread().unpark();
    }
    (tid.load(Ordering::Acquire), waits.join().unwrap())
}

fn of(someone: Someone, tid: u32) -> bool {
    matches!(someone, Someone::Thread(found) if found == tid)
}

/// The three parts of each wake-up of `tid` whose two events lie within it, by the recorder's clock.
fn parts(tid: u32, own: &[(Duration, Duration)], events: &[Seen], zero: Duration) -> Vec<[Duration; 3]> {
    let at = |event: &Seen| zero + event.at;
    let woken: Vec<Duration> = events
        .iter()
        .filter(|e| matches!(e.what, SeenWhat::Wake { wakee, .. } if of(wakee, tid)))
        .map(at)
        .collect();
    let ran: Vec<Duration> = events
        .iter()
        .filter(|e| matches!(e.what, SeenWhat::Switch { to, .. } if of(to, tid)))
        .map(at)
        .collect();
    let first_in = |times: &[Duration], begin: Duration, end: Duration| {
        let index = times.partition_point(|time| *time < begin);
        times.get(index).copied().filter(|time| *time <= end)
    };
    own.iter()
        .filter_map(|&(begin, end)| {
            let woken = first_in(&woken, begin, end)?;
            let ran = first_in(&ran, woken, end)?;
            Some([woken.saturating_sub(begin), ran.saturating_sub(woken), end.saturating_sub(ran)])
        })
        .collect()
}

/// What the tracer's histogram must say is what lies between the two events: within 10 % or 0.3 us.
fn agrees(waker: usize, wakee: usize, of: impl Fn(&Wakes) -> Histogram) {
    let tracer = Tracer::start_within(unlimited(), &own_tree(), &Parts::of([Part::Idle])).unwrap();
    let mut recorder = Recorder::start(&own_tree()).unwrap();
    let zero = now().saturating_sub(recorder.elapsed());
    // The recorder's buffer holds a second's worth of events and more.
    let (tid, own) = game(waker, wakee);
    let seen = of(&tracer.snapshot().unwrap().wakes);
    let batch = recorder.take().unwrap();
    assert_eq!(batch.lost, 0);
    let parts = parts(tid, &own, &batch.events, zero);
    assert!(parts.len() >= FOUND, "{} of {WAKES} wake-ups have both events", parts.len());
    let sorted = |index: usize| {
        let mut times: Vec<Duration> = parts.iter().map(|part| part[index]).collect();
        times.sort_unstable();
        times
    };
    let (ways_in, between, ways_out) = (sorted(0), sorted(1), sorted(2));
    let (n, seen_n) = (parts.len(), usize::try_from(seen.count).unwrap());
    // Of the wake-ups in the histogram's lower half, all that are not among those with both events may be missing.
    let half = seen_n.min(n) / 2;
    let (lowest, highest) =
        (between[half.saturating_sub(seen_n.abs_diff(n))], between[half.max(n - half - 1)]);
    let (told, near) = (seen.median().unwrap(), Duration::from_nanos(300));
    let (way_in, way_out) = (ways_in[n / 2], ways_out[n / 2]);
    let text = format!(
        "{told:?} in the histogram of {seen_n}, {lowest:?} to {highest:?} between {n} pairs of events; \
         in {way_in:?}, out {way_out:?}"
    );
    eprintln!("{text}");
    assert!(told + near.max(lowest / 10) >= lowest && told <= highest + near.max(highest / 10), "{text}");
    // The ways are a system call's, not a wake-up's.
    assert!(way_in < Duration::from_micros(5) && way_out < Duration::from_micros(5), "{text}");
}

#[test]
fn on_the_wakers_vcpu() {
    let Some(_turn) = turn() else { return };
    agrees(0, 0, |wakes| wakes.same_vcpu.clone());
}

#[test]
fn on_an_idle_vcpu() {
    let Some(_turn) = turn() else { return };
    if online() < 2 {
        eprintln!("SKIPPED: needs two vCPUs");
        return;
    }
    agrees(0, 1, |wakes| wakes.halted.plus(&wakes.polling));
}

#[test]
fn on_a_vcpu_that_is_awake() {
    let Some(_turn) = turn() else { return };
    if online() < 2 {
        eprintln!("SKIPPED: needs two vCPUs");
        return;
    }
    let over = Arc::new(AtomicBool::new(false));
    let told = over.clone();
    let busy = thread::spawn(move || {
        pin(1);
        while !told.load(Ordering::Acquire) {
            thread::yield_now();
        }
    });
    agrees(0, 1, |wakes| wakes.awake.clone());
    over.store(true, Ordering::Release);
    busy.join().unwrap();
}
