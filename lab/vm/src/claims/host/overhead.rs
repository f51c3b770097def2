//! What following the vCPUs costs the guests.
//!
//! One workload runs throughout, and blocks with and without the programs follow each other, so that each pair meets the
//! same machine. Work is counted by KVM itself: each operation of these workloads takes the same exits. The host's time is
//! counted in instructions: by the clock, pairs differ by a tenth, which hides 3 %.

use std::fs;
use std::time::{Duration, Instant};

use gleaner_host::Report;
use gleaner_host::discover::discover;
use gleaner_kernel::Root;
use nix::sys::signal::Signal;

use super::{agreement, failed, follow, guest};
use crate::claims::{Checks, Target};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::vm::{Lab, Step};

const PAIRS: usize = 8;
const BLOCK: Duration = Duration::from_secs(3);
/// As `gleaner-host` has it by default.
const BUDGET: f64 = 0.03;
/// What a workload's operations consist of. No other one exits as often; `wake` does nearly, but its rate doubles and halves
/// within seconds by itself, as turns are passed on within KVM's polling or after it.
const WORKLOADS: [(&str, &str); 1] = [("tlb", "exits")];

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let guest = lab.boot(guest("overhead", Kernel::V7))?;
    for (workload, counter) in WORKLOADS {
        let command = ["gleaner", "workload", "--for", "600s", workload];
        let job = guest.start(Step::new(&command).timeout(Duration::from_secs(700)))?;
        let (mut rates, mut ratios, mut shares, mut costs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut last = None;
        for pair in 0..lab.rounds(PAIRS) {
            // Each order as often as the other, so that a drift of the machine cancels out.
            let ((followed, report), free) = if pair % 2 == 0 {
                let followed = followed(counter)?;
                (followed, free(counter)?)
            } else {
                let free = free(counter)?;
                (followed(counter)?, free)
            };
            rates.push(free);
            ratios.push(followed / free.max(1.0));
            shares.push(1.0 / report.scale());
            costs.extend(report.cost.map(|cost| 100.0 * cost.share));
            last = Some(report);
        }
        job.signal(Signal::SIGKILL)?;
        job.wait()?;
        checks.values(format!("{workload}: {counter}, not followed"), &rates, "per second", Target::Reported);
        let what = format!("{workload}: the part of the time that is followed");
        checks.values(what, &shares, "", Target::Reported);
        let what = format!("{workload}: what following costs while it lasts");
        checks.values(what, &costs, "%", Target::Reported);
        let what = format!("{workload}: work done while it is followed");
        checks.ratios(what, &ratios, "×", Target::AtLeast(1.0 - BUDGET));
        let vm = last.as_ref().and_then(|report| Some((report.vms.first()?, report.span_ns)));
        checks.that(format!("{workload}: the VM is found"), vm.is_some(), "");
        if let Some((vm, span_ns)) = vm {
            agreement::times(checks, workload, vm, span_ns);
        }
    }
    guest.power_off()
}

/// KVM's counter per second while the vCPUs are followed, as the product does it, and what was found.
fn followed(counter: &str) -> Result<(f64, Report)> {
    let (setup, mut tracer) = follow()?;
    tracer.keep_within(BUDGET).map_err(|error| failed(&error))?;
    let earlier = tracer.read().map_err(|error| failed(&error))?;
    let rate = rate(counter, |time| tracer.wait(time).map_err(|error| failed(&error)))?;
    let later = tracer.read().map_err(|error| failed(&error))?;
    let report = Report::between(&setup, &discover(&Root::system()), &earlier, &later, None);
    Ok((rate, Report { cost: tracer.cost(), ..report }))
}

/// The same with no program attached.
fn free(counter: &str) -> Result<f64> {
    rate(counter, |time| {
        std::thread::sleep(time);
        Ok(())
    })
}

/// KVM's counter per second while `wait` lets the block pass.
fn rate(counter: &str, wait: impl FnOnce(Duration) -> Result<()>) -> Result<f64> {
    let (started, before) = (Instant::now(), read(counter)?);
    wait(BLOCK)?;
    Ok((read(counter)? - before) / started.elapsed().as_secs_f64())
}

fn read(counter: &str) -> Result<f64> {
    let path = format!("/sys/kernel/debug/kvm/{counter}");
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    Ok(text.trim().parse().unwrap_or_default())
}
