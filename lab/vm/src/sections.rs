//! A program for guests: critical sections that the host sees.
//!
//! Its threads, one per vCPU, take turns. The one whose turn it is takes the lock, wakes up the others, whose vCPUs have nothing
//! else to do, goes on for a while and releases the lock, which they want by then. It marks the section with an instruction
//! that leaves the guest: CPUID, of leaves that no processor has.

use std::arch::x86_64::__cpuid;
use std::hint::black_box;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::{Error, Result};

/// The leaf that a thread asks for when it has the lock.
pub(crate) const TAKEN: u32 = 0x676c_0001;
/// The one before it releases the lock.
pub(crate) const RELEASED: u32 = 0x676c_0002;
/// Steps of computation in a section, after the wake-ups: some 100,000 instructions.
const STEPS: u64 = 10_000;

/// Runs until it is killed.
pub fn run() -> Result<()> {
    let threads = thread::available_parallelism().map_err(Error::system("count the vCPUs"))?.get();
    let turn: &Turn = Box::leak(Box::new(Turn { of: Mutex::new(0), changed: Condvar::new(), threads }));
    for me in 1..threads {
        stay_on(me)?;
        thread::spawn(move || turn.take_each(me));
    }
    stay_on(0)?;
    turn.take_each(0)
}

/// Keeps this thread, and those that it starts, on a vCPU: one that moved would mark start and end on two of them.
fn stay_on(vcpu: usize) -> Result<()> {
    let mut only = CpuSet::new();
    let pinned = only.set(vcpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
    pinned.map_err(Error::system("stay on a vCPU"))
}

/// Whose turn it is.
struct Turn {
    of: Mutex<usize>,
    changed: Condvar,
    threads: usize,
}

impl Turn {
    /// Takes each turn of thread `me`.
    fn take_each(&self, me: usize) -> ! {
        loop {
            let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
            let mut of = self.changed.wait_while(of, |of| *of != me).unwrap_or_else(PoisonError::into_inner);
            __cpuid(TAKEN);
            *of = (me + 1) % self.threads;
            self.changed.notify_all();
            compute();
            __cpuid(RELEASED);
            drop(of);
        }
    }
}

fn compute() {
    black_box((0..STEPS).fold(1_u64, |sum, step| black_box(sum.wrapping_mul(step | 1))));
}
