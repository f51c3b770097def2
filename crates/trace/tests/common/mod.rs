//! What the tests of the programs share: turns, vCPUs, and threads that wake each other.

#![allow(clippy::print_stderr, reason = "a test says what it skips and measures")]
#![allow(dead_code, clippy::unwrap_used, reason = "each test takes what it needs, and may fail here")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_trace::{Budget, Scope, Snapshot};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, geteuid};

pub(crate) const ROUNDS: u64 = 2000;

/// One test at a time: they compare counts of the whole process, and of the machine.
static TURN: Mutex<()> = Mutex::new(());

/// This test's turn; `None`, and a loud word, where it cannot run.
pub(crate) fn turn() -> Option<MutexGuard<'static, ()>> {
    if geteuid().is_root() {
        return Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
    }
    eprintln!("SKIPPED: needs root");
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must run this test: needs root");
    None
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

/// Two threads, `name` each with a number, hand a word to and fro over channels, `ROUNDS` times each way. Each is woken
/// about that often; a hand-over to one that is not asleep yet needs no wake-up.
pub(crate) fn ping_pong(name: &str, cpus: [usize; 2]) {
    let (to_a, from_b) = channel();
    let (to_b, from_a) = channel();
    let play = |index: usize, mine: Receiver<u64>, other: Sender<u64>| {
        let body = move || {
            pin(cpus[index]);
            while let Ok(round) = mine.recv() {
                // Long enough for the other to fall asleep.
                let end = Instant::now() + Duration::from_micros(30);
                while Instant::now() < end {
                    if cpus[0] == cpus[1] {
                        thread::yield_now();
                    }
                }
                if other.send(round + 1).is_err() || round + 1 >= 2 * ROUNDS {
                    return;
                }
            }
        };
        thread::Builder::new().name(format!("{name}{index}")).spawn(body).unwrap()
    };
    let a = play(0, from_b, to_b);
    let b = play(1, from_a, to_a.clone());
    to_a.send(0).unwrap();
    drop(to_a);
    a.join().unwrap();
    b.join().unwrap();
}

/// How often threads were woken whose name begins with `name`.
pub(crate) fn woken(snapshot: &Snapshot, name: &str) -> u64 {
    snapshot.threads.iter().filter(|t| t.name.starts_with(name)).map(|t| t.woken).sum()
}

/// Whatever it costs, everything is followed.
pub(crate) fn unlimited() -> Budget {
    Budget { sample_above: 1e9, detach_above: 1e9 }
}
