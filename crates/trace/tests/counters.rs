//! What is counted beside the kernel's own counters of the same events. They need root.
//!
//! The kernel's files are read before and after each snapshot. What the tracer counted between two snapshots then lies
//! between what the kernel counted at least and at most: no tolerance is needed for the time that reading takes.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use common::{online, ping_pong, turn, unlimited};
use gleaner_kernel::Root;
use gleaner_kernel::idle::{IdleCounters, IdleSensor, IdleSource};
use gleaner_kernel::interrupts::{InterruptCounters, InterruptSensor};
use gleaner_policy::CpuId;
use gleaner_trace::{Events, Parts, Scope, Snapshot, Tracer};

/// The kernel's counters of everything at one moment.
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

/// A snapshot with what the kernel says before and after.
struct Look {
    before: Kernel,
    seen: Snapshot,
    after: Kernel,
}

/// What is compared, and how each side says it.
type Row = (&'static str, fn(&Snapshot) -> u64, fn(&Kernel) -> u64);

fn events(seen: &Snapshot, of: fn(&Events) -> u64) -> u64 {
    seen.vcpus.iter().map(|vcpu| of(&vcpu.events)).sum()
}

fn interrupts(kernel: &Kernel, of: fn(&InterruptCounters) -> u64) -> u64 {
    kernel.interrupts.iter().map(|(_, counters)| of(counters)).sum()
}

const ROWS: [Row; 5] = [
    ("RES", |s| events(s, |e| e.received_reschedule), |k| interrupts(k, |c| c.reschedule)),
    ("CAL", |s| events(s, |e| e.received_call), |k| interrupts(k, |c| c.call)),
    ("LOC", |s| events(s, |e| e.timer_interrupts), |k| interrupts(k, |c| c.timer)),
    ("halts", |s| s.vcpus.iter().map(|v| v.halts.count).sum(), |k| k.idle.iter().map(|c| c.halts).sum()),
    ("polls", |s| s.vcpus.iter().map(|v| v.polls.count).sum(), |k| k.idle.iter().map(|c| c.polls).sum()),
];

/// Fewer than that many events in all prove nothing.
const ENOUGH: u64 = 500;

#[test]
fn each_event_is_counted_as_the_kernel_counts_it() {
    let Some(_turn) = turn() else { return };
    let root = Root::system();
    let mut sensors =
        Sensors { interrupts: InterruptSensor::new(&root).unwrap(), idle: IdleSensor::new(&root).unwrap() };
    let following = Tracer::start_within(unlimited(), &Scope::System, &Parts::all()).unwrap();
    let mut look =
        || Look { before: sensors.read(), seen: following.snapshot().unwrap(), after: sensors.read() };
    let first = look();
    // Hand-overs between idle vCPUs, and threads that push each other aside: both kinds of interrupts.
    for _ in 0..3 {
        ping_pong("irq", [0, online() - 1]);
    }
    let last = look();
    let without_driver = first.before.idle.iter().any(|cpu| cpu.source != IdleSource::Cpuidle);
    let mut compared = 0;
    for (name, seen, counted) in ROWS {
        if without_driver && (name == "halts" || name == "polls") {
            eprintln!("SKIPPED: {name}: there is no cpuidle driver to compare with");
            continue;
        }
        let traced = seen(&last.seen) - seen(&first.seen);
        let fewest = counted(&last.before) - counted(&first.after);
        let most = counted(&last.after) - counted(&first.before);
        // A vCPU may be between the kernel's count of an event and the program's.
        let between = u64::try_from(online()).unwrap();
        assert!(
            (fewest.saturating_sub(between)..=most + between).contains(&traced),
            "{name}: {traced} traced, the kernel counted {fewest} to {most}"
        );
        compared += traced;
    }
    assert!(compared > ENOUGH, "only {compared} events");
}
