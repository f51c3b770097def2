//! Shares of pCPU time.

use std::time::Duration;

use super::{Scheduler, endless, failed, groups, guest};
use crate::claims::{Checks, Target};
use crate::error::Result;
use crate::vm::{Guest, Lab};

const WEIGHTS: [u32; 3] = [100, 200, 400];
const BLOCK: Duration = Duration::from_secs(10);
const ROUNDS: usize = 3;

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    groups::enable()?;
    let names = ["first", "second", "third"];
    let guests = names.iter().map(|name| lab.boot(guest(name))).collect::<Result<Vec<_>>>()?;
    for guest in &guests {
        groups::give_own(guest)?;
    }
    let _scheduler = Scheduler::start(&["--rules", "resched-dp,tlb-co,resched-co"])?;
    let [first, second, third] = &guests[..] else {
        return Err(failed("three guests were booted".to_owned()));
    };

    let jobs = [first.start(endless(&["matmul"]))?, second.start(endless(&["matmul"]))?];
    let equal = "two VMs of equal weight";
    judge(lab, checks, equal, &[first, second], |_| Target::Within(47.0, 53.0))?;

    let last = third.start(endless(&["matmul"]))?;
    for (guest, weight) in guests.iter().zip(WEIGHTS) {
        groups::set_weight(guest, weight)?;
    }
    let total = f64::from(WEIGHTS.iter().sum::<u32>());
    let due = |i: usize| 100.0 * f64::from(WEIGHTS[i]) / total;
    judge(lab, checks, "weights 1:2:4", &[first, second, third], |i| {
        Target::Within(0.95 * due(i), 1.05 * due(i))
    })?;
    end(jobs)?;
    end([last])?;

    for guest in &guests {
        groups::set_weight(guest, 100)?;
    }
    let jobs = [first.start(endless(&["tlb"]))?, second.start(endless(&["matmul"]))?];
    let flooding = "one of two VMs floods the host with interrupts";
    let most = |i: usize| if i == 0 { Target::AtMost(52.0) } else { Target::Reported };
    judge(lab, checks, flooding, &[first, second], most)?;
    end(jobs)?;
    guests.into_iter().try_for_each(Guest::power_off)
}

/// Checks each guest's share of their pCPU time in several blocks.
fn judge(
    lab: &Lab,
    checks: &mut Checks,
    case: &str,
    guests: &[&Guest],
    target: impl Fn(usize) -> Target,
) -> Result<()> {
    let mut blocks = vec![Vec::new(); guests.len()];
    for _ in 0..lab.rounds(ROUNDS) {
        for (shares, share) in blocks.iter_mut().zip(shares(guests)?) {
            shares.push(100.0 * share);
        }
    }
    for (i, (guest, shares)) in guests.iter().zip(&blocks).enumerate() {
        checks.values(format!("{case}: share of the {}", guest.spec().name), shares, "%", target(i));
    }
    Ok(())
}

fn end<const N: usize>(jobs: [crate::vm::Job<'_>; N]) -> Result<()> {
    for job in jobs {
        job.signal(nix::sys::signal::Signal::SIGKILL)?;
        job.wait()?;
    }
    Ok(())
}

/// Shares of the pCPU time of these guests' vCPUs in the next block.
fn shares(guests: &[&Guest]) -> Result<Vec<f64>> {
    let before = guests.iter().map(|guest| groups::ran(guest)).collect::<Result<Vec<f64>>>()?;
    std::thread::sleep(BLOCK);
    let after = guests.iter().map(|guest| groups::ran(guest)).collect::<Result<Vec<f64>>>()?;
    let times: Vec<f64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    let total: f64 = times.iter().sum();
    Ok(times.iter().map(|time| time / total.max(1.0)).collect())
}
