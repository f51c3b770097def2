//! Two pinned threads that wake each other in turn.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_policy::CpuId;

use super::helpers::pin;
use super::{Plan, WakeError, WakeSamples, futex};

/// The value of [`Shared::turn`] that ends the measurement. Turns count from 0, with at most [`Plan::MAX_ROUNDS`] in
/// each direction, so they never reach it.
const STOP: u32 = u32::MAX;

/// The waker's CPU time is read once per this many wake-ups: the system call delays a wakee on the same vCPU.
const ROUNDS_PER_COST: u32 = 8;

/// State shared by the two threads. Thread 0 has the even turns, thread 1 the odd ones.
struct Shared {
    turn: AtomicU32,
    /// When the current turn was handed off, in ns since `start`.
    handed_ns: AtomicU64,
    /// Whether each thread is asleep or about to sleep.
    resting: [AtomicBool; 2],
    /// `Instant` reads `CLOCK_MONOTONIC` through the vDSO, and that clock is the same on every vCPU.
    start: Instant,
}

/// Measurements of one thread: the latencies of its own wake-ups, and the cost of the wake-ups that it made.
#[derive(Default)]
struct ThreadSamples {
    latency_ns: Vec<u64>,
    waker_cpu_ns: Vec<u64>,
    misses: u64,
}

/// How a thread got its turn.
enum Turn {
    /// It was asleep; the wake-up took this many nanoseconds.
    Woken(u64),
    /// It was not asleep yet.
    Missed,
}

impl Shared {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn stop(&self) {
        self.turn.store(STOP, Ordering::Release);
        futex::wake(&self.turn, i32::MAX);
    }

    /// Sleeps until it is `me`'s turn; `None` at the end of the measurement.
    fn await_turn(&self, me: usize) -> Option<Turn> {
        self.resting[me].store(true, Ordering::Release);
        let mut slept_until_ns = None;
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            if turn == STOP {
                return None;
            }
            if turn as usize % 2 == me {
                self.resting[me].store(false, Ordering::Release);
                let handed_ns = self.handed_ns.load(Ordering::Acquire);
                return Some(
                    slept_until_ns.map_or(Turn::Missed, |woken_ns: u64| {
                        Turn::Woken(woken_ns.saturating_sub(handed_ns))
                    }),
                );
            }
            slept_until_ns = futex::wait(&self.turn, turn).then(|| self.now_ns());
        }
    }

    /// Waits until the other thread sleeps, and then for `gap`. Returns false at the end of the measurement.
    fn await_sleep(&self, other: usize, same_vcpu: bool, gap: Duration) -> bool {
        while !self.resting[other].load(Ordering::Acquire) {
            if self.turn.load(Ordering::Acquire) == STOP {
                return false;
            }
            if same_vcpu {
                thread::yield_now();
            } else {
                spin_loop();
            }
        }
        let rested = Instant::now();
        while rested.elapsed() < gap {
            if self.turn.load(Ordering::Acquire) == STOP {
                return false;
            }
            spin_loop();
        }
        true
    }

    /// Hands off the turn and wakes the other thread. Returns false at the end of the measurement.
    fn hand_off(&self) -> bool {
        let turn = self.turn.load(Ordering::Acquire);
        if turn == STOP {
            return false;
        }
        self.handed_ns.store(self.now_ns(), Ordering::Release);
        // Exchange rather than store: a concurrent STOP must stay.
        let handed = self.turn.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if handed {
            futex::wake(&self.turn, 1);
        }
        handed
    }

    /// Runs one thread's side until the end.
    fn run_side(&self, me: usize, plan: &Plan) -> ThreadSamples {
        let mut samples = ThreadSamples::default();
        // Cost of reading the thread's clock, to be subtracted: it is a system call itself.
        let clock_ns = (0..16).map(|_| cpu_ns_since(futex::thread_cpu_time())).min().unwrap_or(0);
        let same_vcpu = plan.waker == plan.wakee;
        let mut mine = me == 0;
        for round in 0..plan.rounds.min(Plan::MAX_ROUNDS) {
            if !mine {
                match self.await_turn(me) {
                    None => return samples,
                    Some(Turn::Missed) => samples.misses += 1,
                    Some(Turn::Woken(ns)) => samples.latency_ns.push(ns),
                }
            }
            mine = false;
            if !self.await_sleep(1 - me, same_vcpu, plan.gap) {
                return samples;
            }
            let before = round.is_multiple_of(ROUNDS_PER_COST).then(futex::thread_cpu_time);
            if !self.hand_off() {
                return samples;
            }
            samples.waker_cpu_ns.extend(before.map(|before| cpu_ns_since(before).saturating_sub(clock_ns)));
        }
        self.stop();
        samples
    }
}

fn cpu_ns_since(before: Duration) -> u64 {
    let spent = futex::thread_cpu_time().saturating_sub(before);
    u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX)
}

/// Measures one-way wake-ups between two threads, in both directions, until the plan's rounds or its budget
/// are used up.
///
/// The threads hand off a turn through one futex, like threads that contend for a `pthread` mutex (paper
/// §3.1). The waker reads `CLOCK_MONOTONIC` just before `FUTEX_WAKE`, the wakee just after `FUTEX_WAIT`
/// returns. Before each wake-up, the waker waits until the other thread sleeps, and then for the plan's gap.
/// A hand-off to a thread that was not asleep counts as a miss and yields no sample.
///
/// # Errors
/// If the process may not use a vCPU, there is no sample at all, or threads get no CPU time: then the call
/// returns `max(budget, timeout)` after the budget and leaves the threads to end by themselves.
pub fn measure(plan: &Plan) -> Result<WakeSamples, WakeError> {
    let shared = Arc::new(Shared {
        turn: AtomicU32::new(0),
        handed_ns: AtomicU64::new(0),
        resting: [AtomicBool::new(false), AtomicBool::new(false)],
        start: Instant::now(),
    });
    let (sender, results) = mpsc::channel();
    for (me, cpu) in [plan.waker, plan.wakee].into_iter().enumerate() {
        let (state, sender, plan) = (Arc::clone(&shared), sender.clone(), *plan);
        let body = move || {
            let samples = pin(cpu).map(|()| state.run_side(me, &plan));
            if samples.is_err() {
                state.stop();
            }
            // If the measurement was abandoned, the receiver is gone and nobody needs the result.
            let _ = sender.send(samples);
        };
        if let Err(source) = spawn(cpu, body) {
            shared.stop();
            return Err(source);
        }
    }
    drop(sender);

    let (mut latency_ns, mut waker_cpu_ns, mut misses) = (Vec::new(), Vec::new(), 0);
    let grace = plan.budget.max(plan.timeout);
    let mut deadline = shared.start + plan.budget;
    let mut over = false;
    loop {
        match results.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(samples) => {
                let samples = samples?;
                latency_ns.extend(samples.latency_ns);
                waker_cpu_ns.extend(samples.waker_cpu_ns);
                misses += samples.misses;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if over => {
                return Err(WakeError::Starved { waker: plan.waker, wakee: plan.wakee, waited: grace });
            }
            Err(RecvTimeoutError::Timeout) => {
                over = true;
                shared.stop();
                // From now on, since this thread might also have been delayed beyond the planned end.
                deadline = Instant::now() + grace;
            }
        }
    }
    WakeSamples::new(latency_ns, waker_cpu_ns, misses).ok_or(WakeError::NoWake {
        waker: plan.waker,
        wakee: plan.wakee,
        budget: plan.budget,
        misses,
    })
}

/// Starts a detached thread, since it must be possible to give up on one that gets no CPU time.
pub(super) fn spawn(cpu: CpuId, body: impl FnOnce() + Send + 'static) -> Result<(), WakeError> {
    thread::Builder::new()
        .name(format!("wake/{cpu}"))
        .spawn(body)
        .map(drop)
        .map_err(|source| WakeError::Spawn { cpu, source })
}
