//! Claim 5: on each kernel of the matrix the BPF programs load and count, or the reason is reported.

use gleaner_bench::workload::Outcome;
use gleaner_trace::Snapshot;

use crate::claims::{Checks, Claim, ClaimHost};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, Step, VmSpec};

pub(super) const BPF: Claim = Claim {
    name: "bpf",
    group: 5,
    says: "on each kernel the BPF programs load and count, or the reason is reported",
    quick: true,
    place: ClaimHost::Emulated,
    prove: |lab, checks| Kernel::ALL.iter().try_for_each(|&kernel| on_kernel(lab, checks, kernel)),
};

/// Number of requests made by the workload.
const REQUESTS: u64 = 1000;

fn on_kernel(lab: &Lab, checks: &mut Checks, kernel: Kernel) -> Result<()> {
    let guest = lab.boot(VmSpec::new("bpf", Image::Tiny, kernel, Cpus::flat(2)).in_turn())?;
    let name = format!("Linux {}", guest.release());
    let (done, counted) = diagnose(&guest)?;
    let (wakes, requests) = (counted.wakes.count(), done.operations);
    // Nearly every request wakes a server, and every reply a client, however long that takes. Some find the other side
    // awake, and if tracing is costly the count is an estimate.
    let enough = requests == REQUESTS && wakes > requests / 10;
    checks.that(format!("{name}: wake-ups are counted"), enough, format!("{wakes} in {requests} requests"));
    let halts: u64 = counted.vcpus.iter().map(|vcpu| vcpu.halts.count).sum();
    checks.that(format!("{name}: halts are counted"), halts > 0, format!("{halts} halts"));
    let missing = counted.missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let found = if missing.is_empty() { "everything loads".to_owned() } else { missing };
    checks.that(
        format!("{name}: what cannot be traced is reported with its reason"),
        !found.is_empty(),
        found,
    );
    guest.power_off()
}

/// Runs a workload whose threads wake each other under `gleaner diagnose`.
fn diagnose(guest: &Guest) -> Result<(Outcome, Snapshot)> {
    let requests = REQUESTS.to_string();
    let workload = ["gleaner", "workload", "request-response", "--operations", &requests, "--json"];
    let step = Step::new(&[&["gleaner", "diagnose", "--json", "--"], &workload[..]].concat());
    let output = guest.complete(step)?;
    // The command's output goes to stderr, among warnings.
    let (report, said) = (output.text(), output.errors());
    let outcome = said.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    let counted = || {
        let mut report: serde_json::Value = serde_json::from_str(&report)?;
        Ok((serde_json::from_str(outcome)?, serde_json::from_value(report["counted"].take())?))
    };
    counted().map_err(|error: serde_json::Error| Error::Protocol {
        who: format!("`gleaner diagnose --json` in VM `{}`", guest.spec().name),
        what: format!("{error}: {outcome} {}", report.chars().take(300).collect::<String>()),
    })
}
