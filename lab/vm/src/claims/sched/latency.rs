//! From an interrupt between vCPUs until its recipient runs.
//!
//! The schedulers take turns, so that each round meets the same machine. The host's time is counted in instructions: by the
//! clock its pCPUs themselves wait for milliseconds for those of the machine that emulates them.

use std::thread::sleep;
use std::time::Duration;

use gleaner_host::discover::discover;
use gleaner_host::{Latencies, Report};
use gleaner_kernel::Root;
use gleaner_trace::Histogram;
use nix::sys::signal::Signal;

use super::{Scheduler, Still, endless, failed, guest};
use crate::claims::host::follow;
use crate::claims::{Checks, Target};
use crate::error::Result;
use crate::vm::{Cpus, Guest, Lab, VmSpec};

const ROUNDS: usize = 3;
const BLOCK: Duration = Duration::from_secs(2);

/// Of the host, and vCPUs of each guest.
pub(super) const PCPUS: u32 = 2;

type Part = fn(&Latencies) -> &Histogram;

/// What is sent.
struct Case {
    what: &'static str,
    /// By whom. Its vCPUs compute in between: those that mostly sleep run at once when they are woken, whoever schedules them.
    workload: &'static [&'static str],
    /// The rules that hurry recipients.
    rules: &'static str,
    /// Their latencies.
    of: Part,
}

const CASES: [Case; 2] = [
    Case {
        what: "function calls",
        workload: &["tlb", "--set", "granularity=500us"],
        rules: "tlb-co",
        of: |latencies| &latencies.call,
    },
    // It needs half of the pCPUs, which is its share: one that needs more has to wait, if not here, then elsewhere.
    Case {
        what: "interrupts for halted vCPUs",
        workload: &["request-response", "--set", "granularity=500us"],
        rules: "tlb-co,resched-co",
        of: |latencies| &latencies.waking,
    },
];

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    // With paravirtual TLB flushes a guest sends shootdowns to running vCPUs alone, which answer at once.
    let guest = |name| VmSpec { cpus: Cpus::flat(PCPUS), ..guest(name) };
    let sender = lab.boot(guest("sender").without("kvm-pv-tlb-flush"))?;
    let neighbour = lab.boot(guest("neighbour"))?;
    let busy = neighbour.start(endless(&["matmul"]))?;
    for Case { what, workload, rules, of } in CASES {
        let job = sender.start(endless(workload))?;
        let (mut ratios, mut times) = ([const { Vec::new() }; NAMES.len()], [const { Vec::new() }; 2]);
        let mut counts = String::new();
        for _ in 0..ROUNDS {
            let (kernel, _) = measure(&[&sender, &neighbour], of, None)?;
            let (ours, counted) = measure(&[&sender, &neighbour], of, Some(&["--rules", rules]))?;
            counts = counted;
            for (times, [mean, ..]) in times.iter_mut().zip([kernel, ours]) {
                times.push(1e6 * mean);
            }
            for (ratios, (kernel, ours)) in ratios.iter_mut().zip(kernel.into_iter().zip(ours)) {
                ratios.push(kernel / ours);
            }
        }
        job.signal(Signal::SIGKILL)?;
        job.wait()?;
        for (times, scheduler) in times.iter().zip(["the kernel's scheduler", "scx_gleaner"]) {
            checks.values(format!("{what}: mean under {scheduler}"), times, "us", Target::Reported);
        }
        let hurried = counts.contains("coscheduled");
        checks.that(format!("{what}, {rules}: recipients become urgent"), hurried, counts);
        for (ratios, name) in ratios.iter().zip(NAMES) {
            checks.ratios(format!("{what}, {rules}: {name} is lower"), ratios, "×", Target::AtLeast(3.0));
        }
    }
    busy.signal(Signal::SIGKILL)?;
    busy.wait()?;
    sender.power_off()?;
    neighbour.power_off()
}

const NAMES: [&str; 3] = ["mean", "median", "p99"];

/// Of these names, in seconds.
fn statistics(latencies: &Histogram) -> Result<[f64; NAMES.len()]> {
    let quantile = |q| latencies.quantile(q).ok_or_else(|| failed("the sender sends nothing".to_owned()));
    Ok([latencies.mean(), quantile(0.5)?, quantile(0.99)?].map(|time| time.as_secs_f64()))
}

/// Latencies of the first guest's vCPUs, under the kernel's scheduler or ours with these options, and what ours counts.
pub(super) fn measure(
    guests: &[&Guest],
    of: Part,
    options: Option<&[&str]>,
) -> Result<([f64; NAMES.len()], String)> {
    let unread = |error: gleaner_host::HostError| failed(error.to_string());
    // The kernel checks programs for seconds, longer still beside guests that compute.
    let still = Still::keep(guests);
    let scheduler = options.map(Scheduler::start).transpose()?;
    let (setup, mut tracer) = follow()?;
    drop(still);
    let earlier = tracer.read().map_err(unread)?;
    sleep(BLOCK);
    let later = tracer.read().map_err(unread)?;
    let counts = scheduler.as_ref().map(Scheduler::counts).unwrap_or_default();
    let vms = discover(&Root::system());
    let _still = Still::keep(guests);
    drop(tracer);
    if let Some(scheduler) = scheduler {
        scheduler.end(Signal::SIGTERM)?;
    }
    let report = Report::between(&setup, &vms, &earlier, &later, None);
    let vm = report.vms.iter().find(|vm| vm.name == guests[0].spec().name);
    let vm = vm.ok_or_else(|| failed("the sender is not found".to_owned()))?;
    let all = vm.vcpus.iter().fold(Histogram::default(), |sum, vcpu| sum.plus(of(&vcpu.latencies)));
    Ok((statistics(&all)?, counts))
}
