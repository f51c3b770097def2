//! From an interrupt between vCPUs until its recipient runs.
//!
//! The schedulers take turns, so that each round meets the same machine.

use std::process::Command;

use gleaner_host::{Latencies, Report};
use gleaner_trace::Histogram;
use nix::sys::signal::Signal;

use super::{Scheduler, endless, failed, guest};
use crate::claims::{Checks, Target};
use crate::error::{Error, Result};
use crate::vm::Lab;

const ROUNDS: usize = 3;
const SECONDS: &str = "5";
/// Ten times the paper's 500 us (§3.1.3): under emulation that is over before a woken vCPU can run.
const URGENT_SLICE: &str = "5ms";

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
            let kernel = measure(of)?;
            let scheduler = Scheduler::start(&["--rules", rule, "--urgent-slice", URGENT_SLICE])?;
            let ours = measure(of)?;
            counts = scheduler.counts();
            scheduler.end(Signal::SIGTERM)?;
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

/// Latencies of the sender's vCPUs.
fn measure(of: Part) -> Result<Histogram> {
    let output = Command::new("gleaner-host")
        .args(["diagnose", "--json", "--vm", "sender", "--seconds", SECONDS, "--budget", "100"])
        .output()
        .map_err(Error::system("run gleaner-host"))?;
    let report: Report = serde_json::from_slice(&output.stdout).map_err(|error| Error::Protocol {
        who: "gleaner-host diagnose --json".to_owned(),
        what: format!("{error}: {}", String::from_utf8_lossy(&output.stderr)),
    })?;
    let vm = report.vms.iter().find(|vm| vm.name == "sender");
    let vm = vm.ok_or_else(|| failed("gleaner-host does not find the sender".to_owned()))?;
    let mut all = Histogram::default();
    for vcpu in &vm.vcpus {
        all = all.plus(of(&vcpu.latencies));
    }
    Ok(all)
}
