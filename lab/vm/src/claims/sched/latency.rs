//! From an interrupt between vCPUs until its recipient runs.
//!
//! The schedulers take turns, so that each round meets the same machine. The host's time is counted in instructions: by the
//! clock its pCPUs themselves wait for milliseconds for those of the machine that emulates them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use gleaner_host::discover::discover;
use gleaner_host::{Latencies, Reading, Report};
use gleaner_kernel::Root;
use gleaner_trace::Histogram;
use nix::sys::signal::Signal;

use super::{Scheduler, Still, endless, failed, guest};
use crate::claims::host::follow;
use crate::claims::{Checks, Target};
use crate::error::Result;
use crate::vm::{Cpus, Guest, Lab, VmSpec};

const ROUNDS: usize = 5;
const BLOCK: Duration = Duration::from_millis(500);
/// Between two looks whether the sender has begun.
const LOOK: Duration = Duration::from_millis(20);
/// Its program has begun by then, where it has to share its pCPU and the machine that emulates it.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// Of the host, and vCPUs of each guest. With two, the vCPUs of a guest may have a pCPU each or share one by chance, and
/// latencies differ by an order of magnitude between rounds.
pub(super) const PCPUS: u32 = 4;

type Part = fn(&Latencies) -> Histogram;

/// What is sent.
struct Case {
    what: &'static str,
    /// By whom. Its vCPUs compute in between: those that mostly sleep run at once when they are woken, whoever schedules them.
    workloads: &'static [&'static [&'static str]],
    /// The rules that hurry recipients.
    rules: &'static str,
    /// Their latencies.
    of: Part,
}

const CASES: [Case; 3] = [
    Case {
        what: "function calls",
        workloads: &[&["tlb", "--set", "granularity=500us"]],
        rules: "tlb-co",
        of: |latencies| latencies.call.clone(),
    },
    // Woken threads preempt others of their vCPU, which is rarely halted, and waits for a pCPU as often as not. Guests wake
    // threads by function calls, too.
    Case {
        what: "interrupts for vCPUs that compute",
        workloads: &[&["barrier", "--kind", "block", "--set", "granularity=500us"], &["matmul"]],
        rules: "resched-dp,tlb-co,resched-co",
        of: |latencies| latencies.reschedule.plus(&latencies.call),
    },
    // It needs less than its share of the pCPUs: one that needs more has to wait, if not here, then elsewhere. The sender
    // of an interrupt holds the lock of a wait queue, for which a recipient that preempts it would spin.
    Case {
        what: "interrupts for halted vCPUs",
        workloads: &[&["request-response", "--set", "granularity=500us"]],
        rules: "resched-dp,tlb-co,resched-co",
        of: |latencies| latencies.waking.clone(),
    },
];

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    // With paravirtual TLB flushes a guest sends shootdowns to running vCPUs alone, which answer at once.
    let guest = |name| VmSpec { cpus: Cpus::flat(PCPUS), ..guest(name) };
    // Without preemption a woken thread waits for a tick where another computes, and no interrupt is sent.
    let sender = guest("sender").without("kvm-pv-tlb-flush").cmdline(&["preempt=full"]);
    let sender = lab.boot(sender)?;
    let neighbour = lab.boot(guest("neighbour"))?;
    let busy = neighbour.start(endless(&["matmul"]))?;
    for case in CASES {
        compare(lab, &[&sender, &neighbour], &case, checks)?;
    }
    busy.signal(Signal::SIGKILL)?;
    busy.wait()?;
    sender.power_off()?;
    neighbour.power_off()
}

/// The schedulers in turn, while the first guest does the case's work. It starts anew in each round: how its threads are
/// spread over the vCPUs, and these over the pCPUs, can stay the same for as long as it runs.
fn compare(lab: &Lab, guests: &[&Guest], case: &Case, checks: &mut Checks) -> Result<()> {
    let &Case { what, workloads, rules, of } = case;
    let mut ratios = [const { Vec::new() }; NAMES.len()];
    let mut times = [const { [const { Vec::new() }; NAMES.len()] }; 2];
    let (mut counts, mut more) = (String::new(), Vec::new());
    for round in 0..lab.rounds(ROUNDS) {
        let jobs = workloads.iter().map(|workload| guests[0].start(endless(workload)));
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        let first = if round % 2 == 0 { Some(measure(guests, of, None)?) } else { None };
        let ours = measure(guests, of, Some(&["--rules", rules]))?;
        let kernel = first.map_or_else(|| measure(guests, of, None), Ok)?;
        for job in jobs {
            job.signal(Signal::SIGKILL)?;
            job.wait()?;
        }
        more.push(ours.interrupts as f64 / kernel.interrupts as f64);
        for (times, measured) in times.iter_mut().zip([&kernel, &ours]) {
            times.iter_mut().zip(measured.latencies).for_each(|(times, time)| times.push(1e6 * time));
        }
        for (ratios, (kernel, ours)) in
            ratios.iter_mut().zip(kernel.latencies.into_iter().zip(ours.latencies))
        {
            ratios.push(kernel / ours);
        }
        counts = ours.counts;
    }
    for (times, scheduler) in times.iter().zip(["the kernel's scheduler", "scx_gleaner"]) {
        for (times, name) in times.iter().zip(NAMES) {
            checks.values(format!("{what}: {name} under {scheduler}"), times, "us", Target::Reported);
        }
    }
    let hurried = counts.contains("coscheduled");
    checks.that(format!("{what}, {rules}: recipients become urgent"), hurried, counts);
    // A latency says nothing of what the recipient does then: some find no work any more, some spin for a lock.
    checks.ratios(format!("{what}, {rules}: their number"), &more, "×", Target::Reported);
    for (ratios, name) in ratios.iter().zip(NAMES) {
        checks.ratios(format!("{what}, {rules}: {name} is lower"), ratios, "×", Target::AtLeast(3.0));
    }
    Ok(())
}

const NAMES: [&str; 3] = ["mean", "median", "p99"];

/// What the first guest's vCPUs met.
pub(super) struct Measured {
    /// In seconds, as in [`NAMES`].
    pub(super) latencies: [f64; NAMES.len()],
    interrupts: u64,
    /// What `scx_gleaner` counts.
    counts: String,
}

/// Of these names, in seconds.
fn statistics(latencies: &Histogram) -> Result<[f64; NAMES.len()]> {
    let quantile = |q| latencies.quantile(q).ok_or_else(|| failed("the sender sends nothing".to_owned()));
    Ok([latencies.mean(), quantile(0.5)?, quantile(0.99)?].map(|time| time.as_secs_f64()))
}

/// What the first guest's vCPUs meet, under the kernel's scheduler or ours with these options, from the first interrupt on.
pub(super) fn measure(guests: &[&Guest], of: Part, options: Option<&[&str]>) -> Result<Measured> {
    let unread = |error: gleaner_host::HostError| failed(error.to_string());
    // The kernel checks programs for seconds, longer still beside guests that compute.
    let still = Still::keep(guests);
    let mut scheduler = options.map(Scheduler::start).transpose()?;
    let (setup, mut tracer) = follow()?;
    let vms = discover(&Root::system());
    drop(still);
    let met = |earlier: &Reading, later: &Reading| {
        let report = Report::between(&setup, &vms, earlier, later, None);
        let vm = report.vms.iter().find(|vm| vm.name == guests[0].spec().name);
        let vm = vm.ok_or_else(|| failed("the sender is not found".to_owned()))?;
        Ok(vm.vcpus.iter().fold(Histogram::default(), |sum, vcpu| sum.plus(&of(&vcpu.latencies))))
    };
    let start = tracer.read().map_err(unread)?;
    let began = Instant::now();
    let earlier = loop {
        sleep(LOOK);
        let now = tracer.read().map_err(unread)?;
        // The sender's program may just be starting.
        if met(&start, &now)?.count > 0 {
            break now;
        }
        if began.elapsed() > STARTS_WITHIN {
            return Err(failed(format!("the sender sends nothing within {STARTS_WITHIN:?}")));
        }
    };
    sleep(BLOCK);
    let later = tracer.read().map_err(unread)?;
    let all = met(&earlier, &later)?;
    let _still = Still::keep(guests);
    drop(tracer);
    if let Some(scheduler) = &mut scheduler {
        scheduler.end(Signal::SIGTERM)?;
    }
    let counts = scheduler.as_ref().map(Scheduler::counts).unwrap_or_default();
    Ok(Measured { latencies: statistics(&all)?, interrupts: all.count, counts })
}
