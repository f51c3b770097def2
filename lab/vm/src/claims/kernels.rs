//! Claim 5: on each kernel of the matrix the BPF programs load and count, or the reason is reported.

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

/// A workload whose threads wake each other thousands of times a second, and that runs when tracing starts: where
/// tracing is costly, it covers less than half a second before it samples.
const TRACED: &str = "gleaner workload request-response --seconds 600 >/dev/null 2>&1 &
    gleaner diagnose --json --pid $! --seconds 2
    status=$?; kill $!; exit $status";

/// Far fewer wake-ups than happen.
const ENOUGH: u64 = 100;

fn on_kernel(lab: &Lab, checks: &mut Checks, kernel: Kernel) -> Result<()> {
    let guest = lab.boot(VmSpec::new("bpf", Image::Tiny, kernel, Cpus::flat(2)).in_turn())?;
    let name = format!("Linux {}", guest.release());
    let counted = diagnose(&guest)?;
    let wakes = counted.wakes.count();
    checks.that(format!("{name}: wake-ups are counted"), wakes > ENOUGH, format!("{wakes} wake-ups"));
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

/// What `gleaner diagnose` counts.
fn diagnose(guest: &Guest) -> Result<Snapshot> {
    let report = guest.complete(Step::shell(TRACED))?.text();
    let counted = || {
        let mut report: serde_json::Value = serde_json::from_str(&report)?;
        serde_json::from_value(report["counted"].take())
    };
    counted().map_err(|error: serde_json::Error| Error::Protocol {
        who: format!("`gleaner diagnose --json` in VM `{}`", guest.spec().name),
        what: format!("{error}: {}", report.chars().take(300).collect::<String>()),
    })
}
