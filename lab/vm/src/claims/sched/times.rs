//! How long recipients of TLB shootdowns wait, by the urgent slice and by the urgent allowance (Figures 7b and 7c of the paper).

use std::time::Duration;

use nix::sys::signal::Signal;

use super::latency::{Part, measure};
use super::{endless, failed, guest};
use crate::claims::{Checks, Target};
use crate::error::Result;
use crate::vm::{Cpus, Guest, Lab, VmSpec};

const ROUNDS: usize = 3;
/// Of the host, and vCPUs of each guest.
pub(super) const PCPUS: u32 = 2;
/// How long a measurement takes: a few hundred recipients without a pCPU, some of which wait for milliseconds.
const BLOCK: Duration = Duration::from_secs(1);
/// From their delivery until the recipient, which had no pCPU, runs.
const CALLS: Part = |vm| vm.latency(|waits| &waits.pcpu_call);
/// Resched-Co makes recipients urgent for a slice. Those of shootdowns stop being urgent once they acknowledge, whatever the slice.
const RULES: &str = "resched-dp,tlb-co,resched-co";
const SHOOTDOWNS: &[&str] = &["tlb", "--set", "granularity=500us"];

/// Values of one option while VMs share the pCPUs.
struct Sweep {
    option: &'static str,
    values: &'static [&'static str],
    /// Of the VMs beside the one that sends shootdowns.
    neighbours: &'static [&'static str],
    /// At the last value recipients wait longer than at the first one.
    grows: bool,
}

const SWEEPS: [Sweep; 2] = [
    // They wake each other, so that several urgent vCPUs wait for a pCPU.
    Sweep {
        option: "--urgent-slice",
        values: &["100us", "500us", "2ms", "5ms"],
        neighbours: &["barrier", "--kind", "block", "--set", "granularity=500us"],
        grows: true,
    },
    // They sleep often, and what slept is ahead of what runs.
    Sweep {
        option: "--allowance",
        values: &["0ms", "6ms", "12ms", "18ms", "24ms"],
        neighbours: &["barrier", "--kind", "block"],
        grows: false,
    },
];

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    // With paravirtual TLB flushes a guest sends shootdowns to running vCPUs alone, which answer at once.
    let boot = |name| lab.boot(VmSpec { cpus: Cpus::flat(PCPUS), ..guest(name) }.without("kvm-pv-tlb-flush"));
    let guests = ["sender", "second", "third"].map(boot).into_iter().collect::<Result<Vec<_>>>()?;
    let all: Vec<&Guest> = guests.iter().collect();
    let sender = guests[0].start(endless(SHOOTDOWNS))?;
    let block = lab.span(BLOCK).max(BLOCK / 2);
    for Sweep { option, values, neighbours, grows } in SWEEPS {
        let jobs =
            guests[1..].iter().map(|guest| guest.start(endless(neighbours))).collect::<Result<Vec<_>>>()?;
        let mut means = vec![Vec::new(); values.len()];
        for _ in 0..lab.rounds(ROUNDS) {
            for (value, means) in values.iter().zip(&mut means) {
                let options = ["--rules", RULES, option, value];
                let measured = measure(&all, CALLS, block, Some(&options))?;
                if CALLS(&measured.sender).count == 0 {
                    return Err(failed(format!("{option} {value}: every recipient has a pCPU")));
                }
                means.push(1e6 * CALLS(&measured.sender).mean().as_secs_f64());
            }
        }
        for (value, means) in values.iter().zip(&means) {
            checks.values(
                format!("{option} {value}: mean wait of recipients"),
                means,
                "us",
                Target::Reported,
            );
        }
        let (first, last) = (&means[0], &means[values.len() - 1]);
        let ratios: Vec<f64> = first.iter().zip(last).map(|(first, last)| last / first).collect();
        let target = if grows { Target::AtLeast(1.0) } else { Target::AtMost(1.0) };
        checks.ratios(format!("{option}: last against first"), &ratios, "×", target);
        for job in jobs {
            job.signal(Signal::SIGKILL)?;
            job.wait()?;
        }
    }
    sender.signal(Signal::SIGKILL)?;
    sender.wait()?;
    guests.into_iter().try_for_each(Guest::power_off)
}
