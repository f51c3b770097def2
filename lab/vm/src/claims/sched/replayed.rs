//! The simulator decides as the scheduler did, from the same events.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use gleaner_sim::scx;
use nix::sys::signal::Signal;

use super::{Scheduler, Still, endless, failed, groups, guest};
use crate::claims::Checks;
use crate::claims::nested::RECORDS;
use crate::error::{Error, Result};
use crate::vm::{Cpus, Guest, Lab, VmSpec};

/// Of the host, and vCPUs of each guest.
pub(super) const PCPUS: u32 = 2;
/// How long each case is recorded.
const BLOCK: Duration = Duration::from_millis(500);

/// What the two guests do meanwhile, and how they are scheduled.
struct Case {
    name: &'static str,
    options: &'static [&'static str],
    work: [&'static [&'static str]; 2],
    weights: [u32; 2],
    /// Whether the host has its second pCPU. With one nothing happens at the same time.
    both: bool,
    /// Kinds of decisions without which the case shows nothing.
    has: &'static [&'static str],
}

/// Decisions of a case, at least.
const ENOUGH: usize = 200;
const SECOND: &str = "/sys/devices/system/cpu/cpu1/online";

const CASES: [Case; 6] = [
    Case {
        name: "shares",
        options: &["--rules", "off"],
        work: [&["matmul"], &["matmul"]],
        weights: [100, 300],
        both: false,
        has: &["chose", "ran"],
    },
    Case {
        name: "sleepers",
        options: &["--rules", "off"],
        work: [&["barrier", "--kind", "block"], &["matmul"]],
        weights: [100, 100],
        both: false,
        has: &["placed", "kicked"],
    },
    // Who is woken waits for its waker to halt, for as long as it is given.
    Case {
        name: "followers",
        options: &["--rules", "off"],
        work: [&["request-response"], &["matmul"]],
        weights: [100, 100],
        both: false,
        has: &["placed", "timed"],
    },
    Case {
        name: "shootdowns",
        options: &["--rules", "tlb-co,tlb-wait"],
        work: [&["tlb", "--set", "granularity=500us"], &["tlb", "--set", "granularity=500us"]],
        weights: [100, 100],
        both: false,
        has: &["kicked", "timed"],
    },
    Case {
        name: "reschedules",
        options: &["--rules", "resched-dp,resched-co"],
        work: [&["pipeline", "--set", "granularity=50us"], &["matmul"]],
        weights: [100, 100],
        both: false,
        has: &["placed", "kicked", "timed"],
    },
    Case {
        name: "balance",
        options: &["--rules", "resched-dp,tlb-co", "--placement", "balance"],
        work: [&["pipeline", "--set", "granularity=50us"], &["tlb", "--set", "granularity=500us"]],
        weights: [200, 100],
        both: true,
        has: &["placed", "kicked", "timed"],
    },
];

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    groups::enable()?;
    fs::create_dir_all(RECORDS).map_err(Error::file("make", RECORDS))?;
    let boot = |name| lab.boot(VmSpec { cpus: Cpus::flat(PCPUS), ..guest(name) }.without("kvm-pv-tlb-flush"));
    let guests = [boot("first")?, boot("second")?];
    for guest in &guests {
        groups::give_own(guest)?;
    }
    for case in &CASES {
        let record = Path::new(RECORDS).join(format!("{}.jsonl", case.name));
        run(case, &guests, &record)?;
        let agreement = scx::replay(&record).map_err(|error| failed(error.to_string()))?;
        let total = agreement.total();
        let mut found =
            format!("{} of {} decisions, {} events", total.same, total.recorded, agreement.events);
        if let Some(difference) = &agreement.difference {
            let _ = write!(found, "; first at line {}: {}", difference.line, difference.text());
        }
        let what = format!("{}: the simulator decides the same, in the same order", case.name);
        checks.that(what, agreement.difference.is_none() && total.recorded >= ENOUGH, found);
        let missing: Vec<&str> =
            case.has.iter().copied().filter(|kind| !agreement.decisions.contains_key(kind)).collect();
        checks.that(
            format!("{}: two VMs, and decisions of each kind that the case is for", case.name),
            agreement.vms == 2 && missing.is_empty(),
            format!("{} VMs; missing: {}", agreement.vms, missing.join(", ")),
        );
    }
    guests.into_iter().try_for_each(Guest::power_off)
}

/// Records the scheduler while the guests work.
fn run(case: &Case, guests: &[Guest; 2], record: &Path) -> Result<()> {
    let mut jobs = Vec::new();
    for ((guest, work), weight) in guests.iter().zip(case.work).zip(case.weights) {
        groups::set_weight(guest, weight)?;
        jobs.push(guest.start(endless(work))?);
    }
    fs::write(SECOND, if case.both { "1" } else { "0" }).map_err(Error::file("write", SECOND))?;
    let all = guests.each_ref();
    let still = Still::keep(&all);
    let file = record.to_string_lossy();
    let mut scheduler = Scheduler::start(&[case.options, &["--record", &file]].concat())?;
    drop(still);
    sleep(BLOCK);
    let still = Still::keep(&all);
    scheduler.end(Signal::SIGTERM)?;
    drop(still);
    for job in jobs {
        job.signal(Signal::SIGKILL)?;
        job.wait()?;
    }
    Ok(())
}
