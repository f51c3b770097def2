//! Compares traced wake-up latencies with the threads' own clock. Needs root.
//!
//! The threads read `CLOCK_MONOTONIC` before the system call that wakes and after the one that waited. The time between
//! has three parts: the waker enters the kernel, up to `sched_waking`; the wake-up as it is traced, up to
//! `sched_switch`; and the wakee's return to user mode. The recorder's times of these events separate them.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]
#![allow(clippy::print_stderr, reason = "a test says what it measures")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
#![allow(clippy::similar_names, reason = "waker and wakee are the words for them")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::{own_tree, pin, slept, turn, unlimited};
use gleaner_testing::has_two_vcpus;
use gleaner_trace::{
    Histogram, LatencySensor, Part, Parts, RecordedEvent, RecordedKind, RecordedTask, Recorder, Tracer, Wakes,
};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::gettid;

/// How often the wakee sleeps, and about how many wake-ups have both events. A call before it sleeps needs none.
const WAKES: u64 = 4000;

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

/// A thread on `waker`'s vCPU wakes one on `wakee`'s until that has slept `WAKES` times. Returns the wakee's TID, and
/// the start of each call and the end of its wait by the threads' clock.
fn game(waker: usize, wakee: usize) -> (u32, Vec<(Duration, Duration)>) {
    let (called, tid) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU32::new(0)));
    let (ready, done) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let waits = {
        let (called, tid, ready, done) = (called.clone(), tid.clone(), ready.clone(), done.clone());
        thread::spawn(move || {
            pin(wakee);
            tid.store(gettid().as_raw().unsigned_abs(), Ordering::Release);
            ready.wait();
            let mut seen = Vec::new();
            let before = slept();
            while slept() - before < WAKES {
                called.store(0, Ordering::Release);
                thread::park();
                let end = now();
                let start = Duration::from_nanos(called.load(Ordering::Acquire));
                if !start.is_zero() {
                    seen.push((start, end));
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
            // On one vCPU it can only fall asleep when this thread yields.
            (0..3).for_each(|_| thread::yield_now());
        }
        // Long enough to fall asleep, and to reach the hypervisor.
        spin_for(Duration::from_micros(20));
        called.store(ns(now()), Ordering::Release);
        waits.thread().unpark();
    }
    (tid.load(Ordering::Acquire), waits.join().unwrap())
}

fn of(task: RecordedTask, tid: u32) -> bool {
    matches!(task, RecordedTask::Thread(found) if found == tid)
}

/// The three parts of each wake-up of `tid` during which both events were recorded, by the recorder's clock.
fn parts(
    tid: u32,
    own: &[(Duration, Duration)],
    events: &[RecordedEvent],
    zero: Duration,
) -> Vec<[Duration; 3]> {
    let at = |event: &RecordedEvent| zero + event.at;
    let woken: Vec<Duration> = events
        .iter()
        .filter(|e| matches!(e.what, RecordedKind::Wake { wakee, .. } if of(wakee, tid)))
        .map(at)
        .collect();
    let ran: Vec<Duration> = events
        .iter()
        .filter(|e| matches!(e.what, RecordedKind::Switch { to, .. } if of(to, tid)))
        .map(at)
        .collect();
    let first_in = |times: &[Duration], start: Duration, end: Duration| {
        let index = times.partition_point(|time| *time < start);
        times.get(index).copied().filter(|time| *time <= end)
    };
    own.iter()
        .filter_map(|&(start, end)| {
            let woken = first_in(&woken, start, end)?;
            let ran = first_in(&ran, woken, end)?;
            Some([woken.saturating_sub(start), ran.saturating_sub(woken), end.saturating_sub(ran)])
        })
        .collect()
}

/// When the recorder's clock started. Of many readings of both clocks, the one that was interrupted least.
fn start_of(recorder: &Recorder) -> Duration {
    let readings = (0..100).map(|_| {
        let before = now();
        let elapsed = recorder.elapsed();
        (now().saturating_sub(before), before.saturating_sub(elapsed))
    });
    readings.min().unwrap().1
}

/// Asserts that the histograms of the tracer and of the waiting sensor match the time between the two events, to within
/// 10 % or 0.3 us.
fn agrees(waker: usize, wakee: usize, of: impl Fn(&Wakes) -> Histogram) {
    let tracer = Tracer::start_within(unlimited(), &own_tree(), &Parts::of([Part::Idle])).unwrap();
    let mut sensor = LatencySensor::load(&own_tree()).unwrap();
    sensor.arm().unwrap();
    let mut recorder = Recorder::start(&own_tree()).unwrap();
    let zero = start_of(&recorder);
    // The recorder's buffer holds more than a second's worth of events.
    let (tid, own) = game(waker, wakee);
    let seen = of(&tracer.snapshot().unwrap().wakes);
    let sensed = sensor.read().unwrap().known;
    let batch = recorder.take().unwrap();
    assert_eq!(batch.lost, 0);
    let parts = parts(tid, &own, &batch.events, zero);
    assert!(parts.len() as u64 >= WAKES * 9 / 10, "{} of {WAKES} wake-ups have both events", parts.len());
    let sorted = |index: usize| {
        let mut times: Vec<Duration> = parts.iter().map(|part| part[index]).collect();
        times.sort_unstable();
        times
    };
    let (entry, between, exit) = (sorted(0), sorted(1), sorted(2));
    let n = between.len();
    // Wake-ups that only one side has can all lie on the same side of the median. The sensor's latencies are a sample,
    // whose median is rarely off by four standard deviations.
    let missing = |histogram: &Histogram| 2 * usize::try_from(histogram.count).unwrap().abs_diff(n) + 1;
    let sampled = (2.0 * n as f64 / (sensed.count as f64).sqrt()).ceil() as usize;
    for (what, histogram, apart) in [("tracer", &seen, missing(&seen)), ("sensor", &sensed, sampled)] {
        let (lowest, highest) = (between[(n / 2).saturating_sub(apart)], between[(n / 2 + apart).min(n - 1)]);
        let reported = histogram.median().unwrap();
        let text = format!(
            "{what}: {reported:?} of {}, {lowest:?} to {highest:?} between {n} pairs of events; entry {:?}, exit {:?}",
            histogram.count,
            entry[n / 2],
            exit[n / 2]
        );
        eprintln!("{text}");
        let near = Duration::from_nanos(300);
        assert!(
            reported + near.max(lowest / 10) >= lowest && reported <= highest + near.max(highest / 10),
            "{text}"
        );
    }
}

#[test]
fn on_the_wakers_vcpu() {
    let Some(_turn) = turn() else { return };
    agrees(0, 0, |wakes| wakes.same_vcpu.clone());
}

#[test]
fn on_an_idle_vcpu() {
    let Some(_turn) = turn() else { return };
    if !has_two_vcpus() {
        return;
    }
    agrees(0, 1, |wakes| wakes.halted.plus(&wakes.polling));
}

#[test]
fn on_a_vcpu_that_is_awake() {
    let Some(_turn) = turn() else { return };
    if !has_two_vcpus() {
        return;
    }
    let over = Arc::new(AtomicBool::new(false));
    let stop = over.clone();
    let busy = thread::spawn(move || {
        pin(1);
        while !stop.load(Ordering::Acquire) {
            thread::yield_now();
        }
    });
    agrees(0, 1, |wakes| wakes.awake.clone());
    over.store(true, Ordering::Release);
    busy.join().unwrap();
}
