//! The fast expansion programs on this machine's kernel. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_policy::{CpuId, CpuSet};
use gleaner_testing::is_root;
use gleaner_trace::{OverloadError, OverloadSensor};
use libbpf_rs::query::{ProgInfoIter, ProgramInfo};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::sched_setaffinity;
use nix::unistd::Pid;

static TURN: Mutex<()> = Mutex::new(());
/// More runnable threads than other programs on the machine have at once.
const MANY: u32 = 16;

/// The sensor, while it is this test's turn; `None`, with a message, without root.
fn loaded_sensor() -> Option<(MutexGuard<'static, ()>, OverloadSensor)> {
    is_root().then(|| (TURN.lock().unwrap(), OverloadSensor::load().unwrap()))
}

fn pin(cpu: usize) {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

fn spin(stop: &AtomicBool) {
    let mut n = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        n = black_box(n.wrapping_mul(3).wrapping_add(1));
    }
}

fn readable(sensor: &OverloadSensor, timeout: Duration) -> bool {
    let timeout = PollTimeout::try_from(timeout).unwrap();
    poll(&mut [PollFd::new(sensor.fd(), PollFlags::POLLIN)], timeout).unwrap() > 0
}

/// Runs `body` while `threads` threads, each set up by `prepare`, spin on vCPU 0.
fn overloaded(threads: usize, prepare: fn(), body: impl FnOnce()) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    let ready = Barrier::new(threads + 1);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                prepare();
                pin(0);
                ready.wait();
                spin(&stop);
            });
        }
        // Stops them even if the body fails.
        let _stop = Stop(&stop);
        ready.wait();
        body();
    });
}

fn as_it_is() {}

fn as_nice_19() {
    // SAFETY: passes no pointers; on Linux this changes the calling thread only.
    assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) }, 0);
}

#[test]
fn an_overload_raises_one_event_until_it_is_armed_again() {
    let Some((_turn, mut sensor)) = loaded_sensor() else { return };
    let (active, persistence) = (CpuSet::first(1), Duration::from_millis(1));
    overloaded(3, as_it_is, || {
        for _ in 0..3 {
            sensor.arm(&active, 3, persistence).unwrap();
            assert!(readable(&sensor, Duration::from_secs(10)), "no event");
            let event = sensor.read().unwrap();
            assert!(event.lasted >= persistence, "{event:?}");
            assert!(event.runnable >= 3 && event.waiting >= 2.0, "{event:?}");
            // A second event would come within a few milliseconds.
            assert!(!readable(&sensor, Duration::from_millis(30)));
            assert_eq!(sensor.read(), None);
        }
        // In the meantime the timer stops; arming starts it again.
        assert!(!readable(&sensor, Duration::from_millis(500)));
        sensor.arm(&active, 3, persistence).unwrap();
        assert!(readable(&sensor, Duration::from_secs(10)), "no event after a pause");
        sensor.read().unwrap();
        sensor.arm(&active, 3, persistence).unwrap();
        sensor.disarm();
        // An event could have come before disarming.
        sensor.read();
        assert!(!readable(&sensor, Duration::from_millis(60)), "disarmed");
    });
}

#[test]
fn a_queue_that_the_set_was_proven_with_is_no_overload() {
    let Some((_turn, mut sensor)) = loaded_sensor() else { return };
    overloaded(2, as_it_is, || {
        // Other programs can run for a moment, but not so many for so long.
        sensor.arm(&CpuSet::first(1), MANY, Duration::from_millis(20)).unwrap();
        assert!(!readable(&sensor, Duration::from_millis(200)), "{:?}", sensor.read());
    });
}

#[test]
fn threads_that_take_what_is_left_over_do_not_count() {
    let Some((_turn, mut sensor)) = loaded_sensor() else { return };
    overloaded(MANY as usize + 4, as_nice_19, || {
        sensor.arm(&CpuSet::first(1), MANY, Duration::from_millis(20)).unwrap();
        assert!(!readable(&sensor, Duration::from_millis(200)), "{:?}", sensor.read());
    });
}

#[test]
fn vcpus_that_are_not_active_are_not_watched() {
    if thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    let Some((_turn, mut sensor)) = loaded_sensor() else { return };
    overloaded(MANY as usize + 4, as_it_is, || {
        sensor.arm(&[CpuId(1)].into_iter().collect(), MANY, Duration::from_millis(20)).unwrap();
        assert!(!readable(&sensor, Duration::from_millis(200)), "{:?}", sensor.read());
        // Armed again, for other vCPUs.
        sensor.arm(&CpuSet::first(2), MANY, Duration::from_millis(1)).unwrap();
        assert!(readable(&sensor, Duration::from_secs(10)), "no event");
    });
}

#[test]
fn there_must_be_a_vcpu_to_watch() {
    let Some((_turn, mut sensor)) = loaded_sensor() else { return };
    for active in [CpuSet::new(), [CpuId(5000)].into_iter().collect()] {
        let error = sensor.arm(&active, 3, Duration::from_millis(1)).unwrap_err();
        assert!(matches!(error, OverloadError::NoSuchCpus { .. }), "{error}");
    }
}

/// IDs of the programs loaded in the kernel.
fn loaded() -> BTreeSet<u32> {
    let ours =
        |program: &ProgramInfo| ["start_clock", "find_queues"].iter().any(|name| program.name == *name);
    ProgInfoIter::default().filter(ours).map(|program| program.id).collect()
}

#[test]
fn what_is_dropped_leaves_no_program_behind_even_while_armed() {
    if !is_root() {
        return;
    }
    let _turn = TURN.lock().unwrap();
    let before = loaded();
    let mut sensor = OverloadSensor::load().unwrap();
    sensor.arm(&CpuSet::first(1), 64, Duration::from_millis(1)).unwrap();
    let mine: BTreeSet<u32> = loaded().difference(&before).copied().collect();
    assert!(mine.len() >= 2, "{mine:?}");
    drop(sensor);
    // The kernel frees a program some time after its last reference is dropped.
    let end = Instant::now() + Duration::from_secs(10);
    while !loaded().is_disjoint(&mine) {
        assert!(Instant::now() < end, "still loaded");
        thread::yield_now();
    }
}
