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
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Scheduler, endless, failed, guest};
use crate::claims::host::follow;
use crate::claims::{Checks, Target};
use crate::error::Result;
use crate::vm::{Guest, Lab};

const ROUNDS: usize = 3;
const BLOCK: Duration = Duration::from_secs(2);

type Part = fn(&Latencies) -> &Histogram;

/// What is sent, by which workload, the rule that hurries its recipients, and their latencies.
const CASES: [(&str, &str, &str, Part); 2] = [
    ("function calls", "tlb", "tlb-co", |latencies| &latencies.call),
    ("interrupts for halted vCPUs", "wake", "resched-co", |latencies| &latencies.waking),
];

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    // With paravirtual TLB flushes a guest sends shootdowns to running vCPUs alone, which answer at once.
    let sender = lab.boot(guest("sender").without("kvm-pv-tlb-flush"))?;
    let neighbour = lab.boot(guest("neighbour"))?;
    let busy = neighbour.start(endless(&["matmul"]))?;
    for (what, workload, rule, of) in CASES {
        let job = sender.start(endless(&[workload]))?;
        let (mut ratios, mut times) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let mut counts = String::new();
        for _ in 0..ROUNDS {
            let (kernel, _) = measure([&sender, &neighbour], of, None)?;
            let (ours, counted) = measure([&sender, &neighbour], of, Some(rule))?;
            counts = counted;
            for (times, latencies) in times.iter_mut().zip([&kernel, &ours]) {
                times.push(1e6 * seconds(latencies, 0.5)?);
            }
            for (ratios, quantile) in ratios.iter_mut().zip([0.5, 0.99]) {
                ratios.push(seconds(&kernel, quantile)? / seconds(&ours, quantile)?);
            }
        }
        job.signal(Signal::SIGKILL)?;
        job.wait()?;
        for (times, scheduler) in times.iter().zip(["the kernel's scheduler", "scx_gleaner"]) {
            checks.values(format!("{what}: median under {scheduler}"), times, "us", Target::Reported);
        }
        let hurried = counts.contains("coscheduled");
        checks.that(format!("{what}, {rule}: recipients become urgent"), hurried, counts);
        for (ratios, name) in ratios.iter().zip(["median", "p99"]) {
            checks.ratios(format!("{what}, {rule}: {name} is lower"), ratios, "×", Target::AtLeast(3.0));
        }
    }
    busy.signal(Signal::SIGKILL)?;
    busy.wait()?;
    sender.power_off()?;
    neighbour.power_off()
}

fn seconds(latencies: &Histogram, quantile: f64) -> Result<f64> {
    let time = latencies.quantile(quantile).ok_or_else(|| failed("the sender sends nothing".to_owned()))?;
    Ok(time.as_secs_f64())
}

/// Latencies of the sender's vCPUs, under the kernel's scheduler or ours with this rule, and what ours counts.
fn measure(guests: [&Guest; 2], of: Part, rule: Option<&str>) -> Result<(Histogram, String)> {
    let unread = |error: gleaner_host::HostError| failed(error.to_string());
    // The kernel checks programs for seconds, longer still beside guests that compute.
    let still = Still::keep(guests);
    let scheduler = rule.map(|rule| Scheduler::start(&["--rules", rule])).transpose()?;
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
    Ok((vm.vcpus.iter().fold(Histogram::default(), |sum, vcpu| sum.plus(of(&vcpu.latencies))), counts))
}

/// Guests that stand still until dropped.
struct Still<'a>([&'a Guest; 2]);

impl<'a> Still<'a> {
    fn keep(guests: [&'a Guest; 2]) -> Self {
        let still = Self(guests);
        still.signal(Signal::SIGSTOP);
        still
    }

    fn signal(&self, signal: Signal) {
        // Children that were not waited for, so the numbers are still theirs.
        for guest in self.0 {
            kill(Pid::from_raw(guest.pid().cast_signed()), signal).ok();
        }
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        self.signal(Signal::SIGCONT);
    }
}
