//! How well tracing agrees with independent measurements.

use std::error::Error;
use std::time::Duration;

use gleaner_bench::workload::{Amount, Parameters, Workload};
use gleaner_calibrate::wake::{Case, Plan};
use gleaner_kernel::Root;
use gleaner_kernel::idle::{IdleCounters, IdleSensor};
use gleaner_kernel::interrupts::{InterruptCounters, InterruptSensor};
use gleaner_policy::CpuId;
use gleaner_trace::{Budget, Events, Parts, Scope, Snapshot, Tracer};

use crate::Outcome;

/// Counts are compared under full tracing, whatever it costs.
const UNLIMITED: Budget = Budget { sample_above: 1e9, detach_above: 1e9 };

/// A shorter difference counts as none: the overhead is measured on one vCPU only, and need not be the same elsewhere.
const RESOLUTION: Duration = Duration::from_nanos(300);

/// Prints how far the two are apart. The threads' clock runs in user mode, from before `FUTEX_WAKE` to after
/// `FUTEX_WAIT`. So it includes entering the kernel up to `sched_waking`, and, after `sched_switch`, the switch itself
/// and the return to user mode. On one vCPU there is little else, so the difference there is the overhead to subtract
/// elsewhere. `tests/latency.rs` separates the three parts of single wake-ups.
pub(crate) fn latencies() -> Outcome {
    println!("  {:<12} {:>9} {:>9} {:>9} {:>9}", "median, us", "own", "traced", "apart", "corrected");
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let mut overhead = None;
    for (case, wakee) in [(Case::SameVcpu, 0), (Case::Awake, 1), (Case::Halting, 1)] {
        let parts = Parts::of([gleaner_trace::Part::Idle]);
        let tracer = Tracer::start_within(UNLIMITED, &Scope::Tree(std::process::id()), &parts)?;
        let plan = Plan { budget: Duration::from_secs(1), ..Plan::new(CpuId(0), CpuId(wakee)) };
        let own = Duration::from_nanos(case.measure(&plan)?.summary().median_ns);
        let wakes = tracer.snapshot()?.wakes;
        let seen = match case {
            Case::SameVcpu => &wakes.same_vcpu,
            Case::Halting => &wakes.halted,
            Case::Awake | Case::Contended => &wakes.awake,
        };
        let seen = seen.median().unwrap_or_default();
        let apart = own.saturating_sub(seen);
        print!("  {case:<12} {:>9.2} {:>9.2} {:>9.2}", us(own), us(seen), us(apart));
        if let Some(overhead) = overhead {
            let expected = own.saturating_sub(overhead);
            let apart = expected.abs_diff(seen);
            let share = if apart <= RESOLUTION { 0.0 } else { apart.as_secs_f64() / expected.as_secs_f64() };
            println!(" {:>9.2}  {:.1} % apart", us(apart), 100.0 * share);
        } else {
            overhead = Some(apart);
            println!("  (the overhead)");
        }
    }
    Ok(())
}

/// Fewer events are not compared: 2 % of them is less than one.
const FEW: u64 = 50;

/// Counters at one moment. The kernel's files are read before and after the snapshot, which bounds what happens while
/// they are read.
struct Sample {
    before: Kernel,
    seen: Snapshot,
    /// From a tracer that keeps its usual budget.
    sampled: Snapshot,
    after: Kernel,
}

struct Kernel {
    interrupts: Vec<(CpuId, InterruptCounters)>,
    idle: Vec<IdleCounters>,
}

/// Name of an event, and its count by the tracer and by the kernel.
type Row = (&'static str, fn(&Snapshot) -> u64, fn(&Kernel) -> u64);

const ROWS: [Row; 4] = [
    ("RES sent", |s| events(s, |e| e.sent_reschedule), |k| interrupts(k, |c| c.reschedule)),
    ("CAL sent", |s| events(s, |e| e.sent_call), |k| interrupts(k, |c| c.call)),
    ("LOC", |s| s.vcpus.iter().map(|vcpu| vcpu.received.timer).sum(), |k| interrupts(k, |c| c.timer)),
    (
        "halts",
        |s| s.vcpus.iter().map(|vcpu| vcpu.halts.count).sum(),
        |k| k.idle.iter().map(|c| c.halts).sum(),
    ),
];

fn events(seen: &Snapshot, of: fn(&Events) -> u64) -> u64 {
    seen.vcpus.iter().map(|vcpu| of(&vcpu.events)).sum()
}

fn interrupts(kernel: &Kernel, of: fn(&InterruptCounters) -> u64) -> u64 {
    kernel.interrupts.iter().map(|(_, counters)| of(counters)).sum()
}

/// Prints how far the two are apart under full tracing, and the estimates of a tracer that keeps its budget.
pub(crate) fn counters() -> Outcome {
    let root = Root::system();
    let (mut interrupts, mut idle) = (InterruptSensor::new(&root)?, IdleSensor::new(&root)?);
    let following = Tracer::start_within(UNLIMITED, &Scope::System, &Parts::all())?;
    let sampling = Tracer::start(&Scope::System, &Parts::all())?;
    let mut kernel =
        || -> Result<_, Box<dyn Error>> { Ok(Kernel { interrupts: interrupts.read()?, idle: idle.read()? }) };
    let mut sample = || -> Result<_, Box<dyn Error>> {
        Ok(Sample {
            sampled: sampling.snapshot()?,
            before: kernel()?,
            seen: following.snapshot()?,
            after: kernel()?,
        })
    };
    let first = sample()?;
    Workload::RequestResponse.run(Amount::Time(Duration::from_secs(10)), &Parameters::default())?;
    let last = sample()?;
    println!("  {:<8} {:>10} {:>21} {:>12}", "", "traced", "kernel", "in budget");
    for (name, seen, counted) in ROWS {
        let traced = seen(&last.seen) - seen(&first.seen);
        let sampled = seen(&last.sampled) - seen(&first.sampled);
        let fewest = counted(&last.before) - counted(&first.after);
        let most = counted(&last.after) - counted(&first.before);
        let apart = fewest.saturating_sub(traced).max(traced.saturating_sub(most));
        let share = 100.0 * apart as f64 / most as f64;
        let agreement = if most < FEW { "too few".to_owned() } else { format!("{share:.2} % apart") };
        println!("  {name:<8} {traced:>10} {:>21} {sampled:>12}  {agreement}", format!("{fewest} to {most}"));
    }
    println!(
        "  in budget: threads and idle periods followed for 1/{} of the time, reported cost {:.2} %",
        last.sampled.one_in,
        100.0 * last.sampled.cost.share
    );
    Ok(())
}
