//! What following the vCPUs costs the guests.
//!
//! One workload runs throughout, and blocks with and without the programs follow each other, so that each pair meets the
//! same machine. Work is counted by KVM itself: each operation of these workloads takes the same exits.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{failed, follow, guest};
use crate::claims::{Checks, Target};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::vm::{Lab, Step};

/// Few: attaching patches the host's code while it runs, which the emulator does not always survive.
const PAIRS: usize = 5;
const BLOCK: Duration = Duration::from_secs(6);
/// What a workload's operations consist of. No other one exits as often.
const WORKLOADS: [(&str, &str); 1] = [("wake", "halt_exits")];

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let guest = lab.boot(guest("overhead", Kernel::V7))?;
    for (workload, counter) in WORKLOADS {
        let command = ["gleaner", "workload", "--for", "600s", workload];
        let job = guest.start(Step::new(&command).timeout(Duration::from_secs(700)))?;
        let (mut rates, mut ratios) = (Vec::new(), Vec::new());
        for pair in 0..PAIRS {
            // Each order as often as the other, so that a drift of the machine cancels out.
            let (followed, free) = if pair % 2 == 0 {
                let followed = block(counter, true)?;
                (followed, block(counter, false)?)
            } else {
                let free = block(counter, false)?;
                (block(counter, true)?, free)
            };
            rates.push(free);
            ratios.push(followed / free.max(1.0));
        }
        job.signal(Signal::SIGKILL)?;
        job.wait()?;
        checks.values(format!("{workload}: {counter}, not followed"), &rates, "per second", Target::Reported);
        let what = format!("{workload}: work done while it is followed");
        checks.ratios(what, &ratios, "×", Target::AtLeast(0.97));
    }
    guest.power_off()
}

/// KVM's counter per second, with the programs attached or without.
fn block(counter: &str, followed: bool) -> Result<f64> {
    let tracer = if followed { Some(follow()?.1) } else { None };
    let (started, before) = (Instant::now(), read(counter)?);
    std::thread::sleep(BLOCK);
    let rate = (read(counter)? - before) / started.elapsed().as_secs_f64();
    if let Some(mut tracer) = tracer {
        let read = tracer.read().map_err(|error| failed(&error))?;
        if read.vcpus.is_empty() {
            return Err(Error::Guest { vm: "overhead".to_owned(), error: "it is not followed".to_owned() });
        }
    }
    Ok(rate)
}

fn read(counter: &str) -> Result<f64> {
    let path = format!("/sys/kernel/debug/kvm/{counter}");
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    Ok(text.trim().parse().unwrap_or_default())
}
