//! Compares traced events with the kernel's own counters of them. Needs root.
//!
//! The kernel's files are read before and after each snapshot, which bounds what the kernel counted between two
//! snapshots, so the time that reading takes needs no tolerance. Interrupts sent are counted by the programs, and
//! compared with those that the kernel says were received.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use common::{ROUNDS, online, pin, ping_pong, turn, unlimited};
use gleaner_kernel::Root;
use gleaner_kernel::idle::{IdleCounters, IdleSensor, IdleSource};
use gleaner_kernel::interrupts::{InterruptCounters, InterruptSensor};
use gleaner_policy::CpuId;
use gleaner_testing::left_out;
use gleaner_trace::{Events, Parts, Scope, Snapshot, Tracer};

/// All the kernel's counters at one moment.
struct Kernel {
    interrupts: Vec<(CpuId, InterruptCounters)>,
    idle: Vec<IdleCounters>,
}

struct Sensors {
    interrupts: InterruptSensor,
    idle: IdleSensor,
}

impl Sensors {
    fn read(&mut self) -> Kernel {
        Kernel { interrupts: self.interrupts.read().unwrap(), idle: self.idle.read().unwrap() }
    }
}

/// A snapshot, with the kernel's counters before and after.
struct Sample {
    before: Kernel,
    seen: Snapshot,
    after: Kernel,
}

/// Name of an event, and its count by the tracer and by the kernel.
type Row = (&'static str, fn(&Snapshot) -> u64, fn(&Kernel) -> u64);

fn events(seen: &Snapshot, of: fn(&Events) -> u64) -> u64 {
    seen.vcpus.iter().map(|vcpu| of(&vcpu.events)).sum()
}

fn received(seen: &Snapshot, of: fn(&InterruptCounters) -> u64) -> u64 {
    seen.vcpus.iter().map(|vcpu| of(&vcpu.received)).sum()
}

fn interrupts(kernel: &Kernel, of: fn(&InterruptCounters) -> u64) -> u64 {
    kernel.interrupts.iter().map(|(_, counters)| of(counters)).sum()
}

const ROWS: [Row; 7] = [
    ("RES sent", |s| events(s, |e| e.sent_reschedule), |k| interrupts(k, |c| c.reschedule)),
    ("CAL sent", |s| events(s, |e| e.sent_call), |k| interrupts(k, |c| c.call)),
    ("RES", |s| received(s, |c| c.reschedule), |k| interrupts(k, |c| c.reschedule)),
    ("CAL", |s| received(s, |c| c.call), |k| interrupts(k, |c| c.call)),
    ("LOC", |s| received(s, |c| c.timer), |k| interrupts(k, |c| c.timer)),
    ("halts", |s| s.vcpus.iter().map(|v| v.halts.count).sum(), |k| k.idle.iter().map(|c| c.halts).sum()),
    ("polls", |s| s.vcpus.iter().map(|v| v.polls.count).sum(), |k| k.idle.iter().map(|c| c.polls).sum()),
];

/// Fewer events of a kind are not compared.
const ENOUGH: u64 = 500;

/// A thread that spins on the last vCPU is preempted `ROUNDS` times by a real-time thread that is woken from the first
/// vCPU. If that one is asleep already, waking it takes a reschedule interrupt.
fn push_aside() {
    let last = online() - 1;
    let over = AtomicBool::new(false);
    let (wake, woken) = channel::<()>();
    let (answer, answered) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(last);
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        scope.spawn(move || {
            pin(last);
            let own = nix::unistd::gettid().to_string();
            assert!(Command::new("chrt").args(["--fifo", "--pid", "1", &own]).status().unwrap().success());
            while woken.recv().is_ok() {
                answer.send(()).unwrap();
            }
        });
        pin(0);
        for _ in 0..ROUNDS {
            wake.send(()).unwrap();
            answered.recv().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        drop(wake);
    });
}

#[test]
fn each_event_is_counted_as_the_kernel_counts_it() {
    let Some(_turn) = turn() else { return };
    let root = Root::system();
    let mut sensors =
        Sensors { interrupts: InterruptSensor::new(&root).unwrap(), idle: IdleSensor::new(&root).unwrap() };
    let following = Tracer::start_within(unlimited(), &Scope::System, &Parts::all()).unwrap();
    let mut sample =
        || Sample { before: sensors.read(), seen: following.snapshot().unwrap(), after: sensors.read() };
    let first = sample();
    for _ in 0..3 {
        ping_pong("irq", [0, online() - 1]);
    }
    let rescheduled = |kernel: &Kernel| interrupts(kernel, |c| c.reschedule);
    let (deadline, mut last) = (Instant::now() + Duration::from_secs(60), sample());
    while rescheduled(&last.before) - rescheduled(&first.after) < ENOUGH {
        assert!(Instant::now() < deadline, "too few reschedule interrupts");
        thread::spawn(push_aside).join().unwrap();
        last = sample();
    }
    let without_driver = first.before.idle.iter().any(|cpu| cpu.source != IdleSource::Cpuidle);
    for (name, seen, counted) in ROWS {
        if without_driver && (name == "halts" || name == "polls") {
            left_out(format_args!("{name}: there is no cpuidle driver to compare with"));
            continue;
        }
        let traced = seen(&last.seen) - seen(&first.seen);
        let fewest = counted(&last.before) - counted(&first.after);
        let most = counted(&last.after) - counted(&first.before);
        println!("{name}: {traced} traced, the kernel counted {fewest} to {most}");
        if most < ENOUGH && !name.starts_with("RES") {
            // How wake-ups of idle vCPUs are split between polling and halted ones depends on the machine.
            println!("{name}: too few to compare");
            continue;
        }
        assert!(most >= ENOUGH, "{name}: only {most}");
        // A vCPU can be between the kernel's count of an event and the program's.
        let apart = most / 50 + u64::try_from(online()).unwrap();
        assert!((fewest.saturating_sub(apart)..=most + apart).contains(&traced), "{name}: {traced} traced");
    }
}
