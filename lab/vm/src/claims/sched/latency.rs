//! From an interrupt between vCPUs until its recipient runs.
//!
//! The schedulers take turns, so that each round meets the same machine. The host's time is counted in instructions: by the
//! clock its pCPUs themselves wait for milliseconds for those of the machine that emulates them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use gleaner_host::discover::discover;
use gleaner_host::{Reading, Report, VmRecord};
use gleaner_kernel::Root;
use gleaner_trace::Histogram;
use nix::sys::signal::Signal;

use super::{Scheduler, Still, endless, failed, guest};
use crate::claims::host::follow;
use crate::claims::{Checks, Target};
use crate::error::Result;
use crate::vm::{Cpus, Guest, Lab, VmSpec};

const ROUNDS: usize = 5;
/// The shortest measurement.
const BLOCK: Duration = Duration::from_millis(500);
/// Between two looks whether the sender has begun.
const LOOK: Duration = Duration::from_millis(20);
/// Its program has begun by then, where it has to share its pCPU and the machine that emulates it.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// Of the host, and vCPUs of each guest. With two, the vCPUs of a guest may have a pCPU each or share one by chance, and
/// latencies differ by an order of magnitude between rounds.
pub(super) const PCPUS: u32 = 4;

/// A kind of latency of all vCPUs of a VM.
pub(super) type Part = fn(&VmRecord) -> Histogram;

/// What is sent.
struct Case {
    what: &'static str,
    /// By whom. Its vCPUs compute in between: those that mostly sleep run at once when they are woken, whoever schedules them.
    workloads: &'static [&'static [&'static str]],
    /// The rules that hurry recipients.
    rules: &'static str,
    /// How long a measurement takes in the full form: some hundred recipients without a pCPU.
    block: Duration,
    /// From their delivery until the recipient, which had no pCPU, runs.
    until_running: Part,
    /// Until the recipient takes them in the guest, which may have its interrupts off, also where it had a pCPU.
    until_taken: Part,
}

const CASES: [Case; 3] = [
    Case {
        what: "function calls",
        workloads: &[&["tlb", "--set", "granularity=500us"]],
        rules: "tlb-co",
        block: BLOCK,
        until_running: |vm| vm.latency(|waits| &waits.pcpu_call),
        until_taken: |vm| vm.latency(|waits| &waits.call),
    },
    // Woken threads preempt others of their vCPU, which is rarely halted, and waits for a pCPU as often as not. Guests wake
    // threads by function calls, too.
    Case {
        what: "interrupts for vCPUs that compute",
        workloads: &[&["barrier", "--kind", "block", "--set", "granularity=500us"], &["matmul"]],
        rules: "resched-dp,tlb-co,resched-co",
        block: Duration::from_secs(2),
        until_running: |vm| {
            vm.latency(|waits| &waits.pcpu_reschedule).plus(&vm.latency(|waits| &waits.pcpu_call))
        },
        until_taken: |vm| vm.latency(|waits| &waits.reschedule).plus(&vm.latency(|waits| &waits.call)),
    },
    // It needs less than its share of the pCPUs: one that needs more has to wait, if not here, then elsewhere. The sender
    // of an interrupt holds the lock of a wait queue, for which a recipient that preempts it would spin.
    Case {
        what: "interrupts for halted vCPUs",
        workloads: &[&["request-response", "--set", "granularity=500us"]],
        rules: "resched-dp,tlb-co,resched-co",
        block: BLOCK,
        until_running: |vm| vm.latency(|waits| &waits.pcpu_halted),
        until_taken: |vm| vm.latency(|waits| &waits.waking),
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
    let &Case { what, workloads, rules, block, until_running, until_taken } = case;
    let block = lab.span(block).max(BLOCK);
    let measure = |options: Option<&[&str]>| measure(guests, until_taken, block, options);
    let (mut kernels, mut ours) = (Vec::new(), Vec::new());
    for round in 0..lab.rounds(ROUNDS) {
        let jobs = workloads.iter().map(|workload| guests[0].start(endless(workload)));
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        let first = if round % 2 == 0 { Some(measure(None)?) } else { None };
        ours.push(measure(Some(&["--rules", rules]))?);
        kernels.push(first.map_or_else(|| measure(None), Ok)?);
        for job in jobs {
            job.signal(Signal::SIGKILL)?;
            job.wait()?;
        }
    }
    for (measured, scheduler) in [(&kernels, "the kernel's scheduler"), (&ours, "scx_gleaner")] {
        let waited: Vec<f64> = measured
            .iter()
            .map(|m| 100.0 * until_running(&m.sender).count as f64 / until_taken(&m.sender).count as f64)
            .collect();
        checks.values(
            format!("{what}: recipients without a pCPU under {scheduler}"),
            &waited,
            "%",
            Target::Reported,
        );
        for (place, name) in NAMES.iter().enumerate() {
            let times = measured.iter().map(|m| Ok(1e6 * statistics(&until_running(&m.sender))?[place]));
            let times = times.collect::<Result<Vec<_>>>()?;
            checks.values(
                format!("{what}: {name} until these run under {scheduler}"),
                &times,
                "us",
                Target::Reported,
            );
        }
    }
    let counts = ours.last().map(|m| m.counts.as_str()).unwrap_or_default();
    checks.that(format!("{what}, {rules}: recipients become urgent"), counts.contains("coscheduled"), counts);
    for (part, end, target) in
        [(until_taken, "until it is taken", Target::Reported), (until_running, "until these run", TARGET)]
    {
        for (place, name) in NAMES.iter().enumerate() {
            let ratios = kernels.iter().zip(&ours).map(|(kernel, ours)| {
                Ok(statistics(&part(&kernel.sender))?[place] / statistics(&part(&ours.sender))?[place])
            });
            let ratios = ratios.collect::<Result<Vec<_>>>()?;
            checks.ratios(format!("{what}, {rules}: {name} {end} is lower"), &ratios, "×", target);
        }
    }
    Ok(())
}

const TARGET: Target = Target::AtLeast(3.0);

const NAMES: [&str; 3] = ["mean", "median", "p99"];

/// What the first guest's vCPUs met.
pub(super) struct Measured {
    /// The guest.
    pub(super) sender: VmRecord,
    /// What `scx_gleaner` counts.
    counts: String,
}

/// Of these names, in seconds.
fn statistics(latencies: &Histogram) -> Result<[f64; NAMES.len()]> {
    let quantile = |q| latencies.quantile(q).ok_or_else(|| failed("no recipient waits".to_owned()));
    Ok([latencies.mean(), quantile(0.5)?, quantile(0.99)?].map(|time| time.as_secs_f64()))
}

/// What the first guest's vCPUs meet, under the kernel's scheduler or ours with these options, for the
/// length of a block from the first of these interrupts on.
pub(super) fn measure(
    guests: &[&Guest],
    interrupts: Part,
    block: Duration,
    options: Option<&[&str]>,
) -> Result<Measured> {
    let unread = |error: gleaner_host::HostError| failed(error.to_string());
    // The kernel checks programs for seconds, longer still beside guests that compute.
    let still = Still::keep(guests);
    let mut scheduler = options.map(Scheduler::start).transpose()?;
    let (setup, mut tracer) = follow()?;
    let vms = discover(&Root::system());
    drop(still);
    let met = |earlier: &Reading, later: &Reading| {
        let report = Report::between(&setup, &vms, earlier, later, None);
        let vm = report.vms.into_iter().find(|vm| vm.name == guests[0].spec().name);
        vm.ok_or_else(|| failed("the sender is not found".to_owned()))
    };
    let start = tracer.read().map_err(unread)?;
    let began = Instant::now();
    let earlier = loop {
        sleep(LOOK);
        let now = tracer.read().map_err(unread)?;
        // The sender's program may just be starting.
        if interrupts(&met(&start, &now)?).count > 0 {
            break now;
        }
        if began.elapsed() > STARTS_WITHIN {
            return Err(failed(format!("the sender sends nothing within {STARTS_WITHIN:?}")));
        }
    };
    sleep(block);
    let later = tracer.read().map_err(unread)?;
    let sender = met(&earlier, &later)?;
    let _still = Still::keep(guests);
    drop(tracer);
    if let Some(scheduler) = &mut scheduler {
        scheduler.end(Signal::SIGTERM)?;
    }
    let counts = scheduler.as_ref().map(Scheduler::counts).unwrap_or_default();
    Ok(Measured { sender, counts })
}
