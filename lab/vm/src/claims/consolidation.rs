//! Claim 2, in a guest with 8 vCPUs on two CPUs: fine-grained work settles on fewer active vCPUs and gets faster and
//! cheaper, while coarse-grained work keeps all of them and loses nothing.

use std::time::Duration;

use gleaner_policy::{AfterRollBack, Event, Factor, Setting, Verdict};
use gleaner_proto::journal::Record;

use crate::claims::journal;
use crate::claims::measure::{Mode, ratios, sample};
use crate::claims::{Checks, Claim, ClaimHost, Target};
use crate::error::Result;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, Step, VmSpec};

pub(super) const FINE: Claim = Claim {
    name: "consolidation-fine",
    group: 2,
    says: "with 8 vCPUs, fine-grained work settles on fewer of them, faster and for less CPU time",
    quick: false,
    place: ClaimHost::Emulated,
    prove: |lab, checks| {
        let guest = boot(lab)?;
        // By default they have as many threads as they may use vCPUs, which by hand would be two.
        let threads = ["--threads", "8"];
        let [pipeline, task_queue] = ["pipeline", "task-queue"].map(|name| [&[name][..], &threads].concat());
        for workload in [&pipeline[..], &["request-response"], &task_queue] {
            let settled = measure(&guest, checks, workload, FINE_PLAN)?;
            let what = format!("{}: active vCPUs for most of the time, of 8", workload[0]);
            checks.values(what, &settled, "vCPUs", Target::AtMost(4.0));
        }
        guest.power_off()
    },
};

pub(super) const COARSE: Claim = Claim {
    name: "consolidation-coarse",
    group: 2,
    says: "with 8 vCPUs, coarse work keeps all of them and loses nothing",
    quick: false,
    place: ClaimHost::Emulated,
    prove: |lab, checks| {
        let guest = boot(lab)?;
        for workload in [&["matmul"][..], &["barrier", "--set", "granularity=10ms"]] {
            let settled = measure(&guest, checks, workload, COARSE_PLAN)?;
            let what = format!("{}: active vCPUs for most of the time, of 8", workload[0]);
            checks.values(what, &settled, "vCPUs", Target::AtLeast(8.0));
        }
        guest.power_off()
    },
};

pub(super) const PHASES: Claim = Claim {
    name: "consolidation-phases",
    group: 2,
    says: "with 8 vCPUs and without retention, a program that turns from fine to coarse work has all of them again; what did not prove itself \
           is rolled back and a factor of §5 adjusted, and the journal records all of it",
    quick: false,
    place: ClaimHost::Emulated,
    prove: |lab, checks| {
        let guest = boot(lab)?;
        let fine = format!("gleaner workload pipeline --for {}s", FINE_FOR.as_secs());
        let program = format!("{fine}; gleaner workload matmul --for 8s");
        let words = [SETS_ONLY.prefix, &["sh", "-c", &program]].concat();
        guest.succeed(Step::new(&words).timeout(TIMEOUT))?;
        phases(&journal::records(&guest)?, checks);
        guest.succeed(Step::new(&[SETS_ONLY.prefix, &EVEN].concat()).timeout(TIMEOUT))?;
        roll_backs(&journal::records(&guest)?, checks);
        guest.power_off()
    },
};

/// How long the two-phase program does fine-grained work.
const FINE_FOR: Duration = Duration::from_secs(20);
/// Two threads that wait for each other often enough for a trial, and compute long enough to need a vCPU each: one vCPU
/// is too few, and more than two make no difference.
const EVEN: [&str; 9] =
    ["gleaner", "workload", "barrier", "--threads", "2", "--set", "granularity=500us", "--for", "12s"];
/// Timeout of a run: under emulation it can take many times as long as its clock says.
const TIMEOUT: Duration = Duration::from_secs(160);

/// Consolidation only: trials of retention would take most of the time.
const SETS_ONLY: Mode = Mode {
    name: "sets only",
    prefix: &["gleaner", "run", "-q", "--no-memory", "--no-retain", "--journal", journal::PATH, "--"],
};
/// The best that a smaller active set can gain.
const CONSOLIDATED: Mode =
    Mode { name: "consolidated", prefix: &["gleaner", "run", "-q", "--fixed", "consolidate:2", "--"] };
/// A fixed setting needs no time for a search.
const CONSOLIDATED_TIME: Duration = Duration::from_secs(4);

/// How to compare a workload, and the targets.
#[derive(Clone, Copy)]
struct Plan {
    rounds: usize,
    time: Duration,
    faster: f64,
    cost: Target,
    by_hand: bool,
}

/// Each run includes the search, which polls, so short runs are expensive.
const FINE_PLAN: Plan =
    Plan { rounds: 3, time: Duration::from_secs(12), faster: 1.2, cost: Target::AtMost(1.0), by_hand: true };
/// Enough to see a loss of 3 % although rounds differ by 5 %.
const COARSE_PLAN: Plan =
    Plan { rounds: 5, time: Duration::from_secs(8), faster: 0.97, cost: Target::Reported, by_hand: false };

fn boot(lab: &Lab) -> Result<Guest> {
    lab.boot(VmSpec::new("consolidation", Image::Tiny, Kernel::V6_12, Cpus::flat(8)))
}

/// Measures a workload untouched and under Gleaner. Returns the number of vCPUs active for most of each run.
fn measure(guest: &Guest, checks: &mut Checks, workload: &[&str], plan: Plan) -> Result<Vec<f64>> {
    let name = workload[0];
    let (mut untouched, mut gleaner, mut consolidated) = (Vec::new(), Vec::new(), Vec::new());
    let mut settled = Vec::new();
    for round in 0..plan.rounds {
        // The order alternates, so that drift affects both alike.
        for turn in 0..2 {
            let (mode, samples) = match (round + turn) % 2 {
                0 => (Mode::UNTOUCHED, &mut untouched),
                _ => (Mode::JOURNALLED, &mut gleaner),
            };
            samples.push(sample(guest, mode, workload, plan.time)?);
        }
        settled.push(journal::longest_active(&journal::summary(&journal::records(guest)?)?));
        if plan.by_hand {
            consolidated.push(sample(guest, CONSOLIDATED, workload, CONSOLIDATED_TIME)?);
        }
    }
    let faster = ratios(&gleaner, &untouched, |sample| sample.throughput);
    checks.ratios(format!("{name}: throughput, to untouched"), &faster, "×", Target::AtLeast(plan.faster));
    let cost = ratios(&gleaner, &untouched, |sample| sample.busy_per_operation);
    checks.ratios(format!("{name}: CPU time of an operation, to untouched"), &cost, "×", plan.cost);
    if plan.by_hand {
        let by_hand = ratios(&consolidated, &untouched, |sample| sample.throughput);
        let what = format!("{name}: throughput on 2 vCPUs by hand, to untouched");
        checks.ratios(what, &by_hand, "×", Target::Reported);
    }
    Ok(settled)
}

/// Decisions and their times.
fn decisions(records: &[Record]) -> Vec<(Duration, &Event)> {
    let decision = |record| match record {
        &Record::Decision { at, ref event, .. } => Some((at, event)),
        _ => None,
    };
    records.iter().filter_map(decision).collect()
}

/// Checks the journal of a program for which no smaller set is better.
fn roll_backs(records: &[Record], checks: &mut Checks) {
    let rolled_back: Vec<(String, AfterRollBack)> = decisions(records)
        .into_iter()
        .filter_map(|(at, event)| match event {
            Event::RolledBack { active, refutation, then } => {
                Some((format!("to {active} at {at:.1?}: {refutation}; {then}"), *then))
            }
            _ => None,
        })
        .collect();
    let first = |of: &dyn Fn(&AfterRollBack) -> bool| {
        let found: Vec<_> = rolled_back.iter().filter(|(_, then)| of(then)).collect();
        (
            !found.is_empty(),
            format!("{}, first {}", found.len(), found.first().map_or("none", |(message, _)| message)),
        )
    };
    let (any, found) = first(&|_| true);
    checks.that("a smaller set that does not prove itself is rolled back", any, found);
    let shrunk = |then: &AfterRollBack| match then {
        AfterRollBack::Adjusted(Factor::Rho { from, to } | Factor::Eta { from, to }) => to < from,
        AfterRollBack::GoesOn { .. } => false,
    };
    let (any, found) = first(&shrunk);
    checks.that("at the end of the search a factor of §5 shrinks, with its numbers", any, found);
}

/// Checks the journal of the two-phase program.
fn phases(records: &[Record], checks: &mut Checks) {
    let events = decisions(records);
    let smaller = |setting: &Setting| setting.active.len() < 8;
    let consolidated = events.iter().find_map(|(at, event)| match event {
        Event::TrialEnded { kept, verdict: Verdict::Proven(_), .. } if smaller(kept) => {
            Some((*at, kept.active.len()))
        }
        _ => None,
    });
    let instead = || {
        let first = events.iter().take(3).map(|(at, event)| format!("at {at:.1?} {event:?}"));
        format!("never; what was decided first: {}", first.collect::<Vec<_>>().join(", "))
    };
    let found = consolidated.map_or_else(instead, |(at, n)| format!("{n} vCPUs after {at:.1?}"));
    checks.that("fine work is consolidated on fewer vCPUs, proven", consolidated.is_some(), found);
    // The work changes after 20 s: check the setting then, and what ends it.
    let (mut smaller_set, mut back) = (false, None);
    for (at, event) in &events {
        let all = match event {
            Event::TrialEnded { kept, .. } => !smaller(kept),
            Event::Expanded { .. } | Event::MajorChange { .. } => true,
            _ => continue,
        };
        if *at < FINE_FOR {
            smaller_set = !all;
        } else if smaller_set && all && back.is_none() {
            back = Some(format!("{:.2?} later: {event:?}", at.saturating_sub(FINE_FOR)));
        }
    }
    checks.that(
        "fine work ends on fewer vCPUs",
        smaller_set,
        if smaller_set { "yes" } else { "all of them" },
    );
    let found = back.clone().unwrap_or_else(|| "never".to_owned());
    checks.that("all vCPUs come back when the work changes", back.is_some(), found);
    let end = records.iter().rev().find_map(|record| match record {
        Record::Observation { in_force, .. } => Some(in_force.active.len()),
        _ => None,
    });
    checks.equal("coarse work ends with every vCPU", &end, &Some(8));
}
