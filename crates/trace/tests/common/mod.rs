//! Shared by the tests of the programs: turns, vCPUs, and threads that wake each other.

#![allow(dead_code, clippy::unwrap_used, reason = "each test takes what it needs, and may fail here")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use gleaner_testing::is_root;
use gleaner_trace::{Budget, Scope, Snapshot};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;

pub(crate) const ROUNDS: u64 = 2000;

/// One test at a time: they compare counts of the whole process and machine.
static TURN: Mutex<()> = Mutex::new(());

/// This test's turn; `None`, with a message, if it cannot run.
pub(crate) fn turn() -> Option<MutexGuard<'static, ()>> {
    is_root().then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(crate) fn own_tree() -> Scope {
    Scope::Tree(std::process::id())
}

pub(crate) fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

pub(crate) fn online() -> usize {
    thread::available_parallelism().unwrap().get()
}

/// Two threads, called `name` and a number, pass a word back and forth over channels until each has slept `ROUNDS`
/// times. Returns how often both slept by the kernel's count: each sleep ends with a wake-up, while a hand-off to a
/// thread that is still awake needs none.
pub(crate) fn ping_pong(name: &str, cpus: [usize; 2]) -> u64 {
    let (to_a, from_b) = channel();
    let (to_b, from_a) = channel();
    let play = |index: usize, mine: Receiver<bool>, other: Sender<bool>| {
        let body = move || {
            pin(cpus[index]);
            while let Ok(other_is_done) = mine.recv() {
                // Long enough for the other to fall asleep.
                let end = Instant::now() + Duration::from_micros(30);
                while Instant::now() < end {
                    if cpus[0] == cpus[1] {
                        thread::yield_now();
                    }
                }
                let done = slept() >= ROUNDS;
                if other.send(done).is_err() || done && other_is_done {
                    break;
                }
            }
            slept()
        };
        thread::Builder::new().name(format!("{name}{index}")).spawn(body).unwrap()
    };
    let a = play(0, from_b, to_b);
    let b = play(1, from_a, to_a.clone());
    to_a.send(false).unwrap();
    drop(to_a);
    a.join().unwrap() + b.join().unwrap()
}

/// How often this thread has slept.
pub(crate) fn slept() -> u64 {
    getrusage(UsageWho::RUSAGE_THREAD).unwrap().voluntary_context_switches().unsigned_abs()
}

/// Asserts that the threads whose names start with `name` were woken as often as they slept. A thread that is woken
/// just before it sleeps has not slept.
pub(crate) fn assert_woken(seen: &Snapshot, name: &str, slept: u64) {
    let woken = woken(seen, name);
    assert!(woken.abs_diff(slept) <= slept / 20, "{name}: woken {woken} times, slept {slept} times");
}

/// How often threads whose names start with `name` were woken.
pub(crate) fn woken(snapshot: &Snapshot, name: &str) -> u64 {
    snapshot.threads.iter().filter(|t| t.name.starts_with(name)).map(|t| t.woken).sum()
}

/// Never samples or detaches, whatever tracing costs.
pub(crate) fn unlimited() -> Budget {
    Budget { sample_above: 1e9, detach_above: 1e9 }
}

/// Waits until a newly started `sleep` is asleep.
pub(crate) fn until_asleep(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") S ") {
        assert!(Instant::now() < deadline, "process {pid} does not fall asleep");
        thread::yield_now();
    }
}
