//! The top cause for guests whose cause is known.

use std::time::Duration;

use gleaner_host::cause::{Cause, WORTH};
use gleaner_host::{Report, VmRecord};
use nix::sys::signal::Signal;

use super::guest;
use crate::claims::Checks;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::vm::{Guest, Lab, Step};

/// Writes blocks of 4 KiB to the disk, past the cache.
const WRITER: &str =
    "while dd if=/dev/zero of=/dev/vda bs=4k count=2000 oflag=direct 2>/dev/null; do :; done";
const SCRATCH_MIB: u32 = 16;
const SECONDS: &str = "6";
/// Longer than everything that happens beside the workload.
const LONG: &str = "120s";

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    // On Linux 7 a sleep of 1 ns returns at once here, without an idle vCPU.
    let first = lab.boot(guest("first", Kernel::V6_12).scratch(SCRATCH_MIB))?;
    for (workload, expected) in [
        (&["wake"][..], Some(Cause::WakeUps)),
        (&["tlb"], Some(Cause::FunctionCalls)),
        (&["freqsleep", "--threads", "1"], Some(Cause::Timers)),
        (&["matmul"], None),
    ] {
        let vms = beside(&first, &own(workload))?;
        judge(checks, &format!("{} on free pCPUs", workload[0]), find(&vms, "first")?, expected);
    }
    let vms = beside(&first, &Step::shell(WRITER).timeout(Duration::from_secs(120)))?;
    judge(checks, "a writer to a disk", find(&vms, "first")?, Some(Cause::Devices));
    overcommitted(lab, &first, checks)?;
    first.power_off()
}

/// Two guests with two busy vCPUs each on two pCPUs.
fn overcommitted(lab: &Lab, first: &Guest, checks: &mut Checks) -> Result<()> {
    first.pin(&[vec![0], vec![1]])?;
    let second = lab.boot(guest("second", Kernel::V7).pinned_to(&[0, 1]))?;
    let neighbour = second.start(own(&["matmul"]))?;
    let vms = beside(first, &own(&["user-spin-barrier"]))?;
    neighbour.signal(Signal::SIGKILL)?;
    neighbour.wait()?;
    // These processors report no PAUSE loops, and nobody spins in the kernel: what is left is preemption.
    judge(checks, "a spin barrier on shared pCPUs", find(&vms, "first")?, Some(Cause::Preemption));
    let first_vm = find(&vms, "first")?;
    let waited = first_vm.waited_for.first();
    let found = waited.map_or("nobody".to_owned(), |by| format!("{}, {:.1} s", by.who, by.ns as f64 / 1e9));
    checks.that(
        "a spin barrier on shared pCPUs: it waits for the neighbour",
        waited.is_some_and(|by| by.who == "second"),
        found,
    );
    second.power_off()
}

fn own(workload: &[&str]) -> Step {
    Step::new(&[&["gleaner", "workload", "--for", LONG], workload].concat()).timeout(Duration::from_secs(200))
}

/// Diagnoses this host while the guest runs a step.
fn beside(guest: &Guest, step: &Step) -> Result<Vec<VmRecord>> {
    let job = guest.start(step.clone())?;
    let output = std::process::Command::new("gleaner-host")
        // Under emulation the kernel's account of BPF programs says little; what they cost is measured in a claim of its own.
        .args(["diagnose", "--json", "--seconds", SECONDS, "--budget", "100"])
        .output()
        .map_err(Error::system("run gleaner-host"))?;
    job.signal(Signal::SIGKILL)?;
    job.wait()?;
    let report: Report = serde_json::from_slice(&output.stdout).map_err(|error| Error::Protocol {
        who: "gleaner-host diagnose --json".to_owned(),
        what: format!("{error}: {}", String::from_utf8_lossy(&output.stderr)),
    })?;
    Ok(report.vms)
}

fn find<'v>(vms: &'v [VmRecord], name: &str) -> Result<&'v VmRecord> {
    vms.iter().find(|vm| vm.name == name).ok_or_else(|| Error::Guest {
        vm: name.to_owned(),
        error: "gleaner-host does not find it".to_owned(),
    })
}

fn judge(checks: &mut Checks, what: &str, vm: &VmRecord, expected: Option<Cause>) {
    // Under emulation ticks are expensive, the host's and the guest's; a program does nothing for them.
    let ticks = [Cause::HostInterrupts, Cause::Tick];
    let guests = vm.causes.iter().find(|cost| !ticks.contains(&cost.cause));
    let top = guests.filter(|cost| cost.share >= WORTH).map(|cost| cost.cause);
    let shares: Vec<String> =
        vm.causes.iter().take(4).map(|cost| format!("{} {:.1} %", cost.cause, 100.0 * cost.share)).collect();
    let name = expected.map_or("nothing", Cause::name);
    checks.that(format!("{what}: beside ticks, the top cause is {name}"), top == expected, shares.join(", "));
}
