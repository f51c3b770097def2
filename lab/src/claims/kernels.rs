//! Claim 5: on each kernel of the matrix the BPF programs load and count, or it is told why not.

use gleaner_trace::Snapshot;

use crate::claims::{Checks, Claim, Place};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, Step, VmSpec};

pub(super) const BPF: Claim = Claim {
    name: "bpf",
    group: 5,
    says: "the BPF programs load and count, or it is told why not, on each kernel",
    quick: true,
    place: Place::Emulated,
    prove: |lab, checks| Kernel::ALL.iter().try_for_each(|&kernel| on_kernel(lab, checks, kernel)),
};

fn on_kernel(lab: &Lab, checks: &mut Checks, kernel: Kernel) -> Result<()> {
    let guest = lab.boot(VmSpec::new("bpf", Image::Tiny, kernel, Cpus::flat(2)))?;
    let name = format!("Linux {}", guest.release());
    let counted = diagnose(&guest)?;
    let wakes = counted.wakes.count();
    checks.that(format!("{name}: wake-ups are counted"), wakes > 100, format!("{wakes} wake-ups in 2 s"));
    let halts: u64 = counted.vcpus.iter().map(|vcpu| vcpu.halts.count).sum();
    checks.that(format!("{name}: halts are counted"), halts > 0, format!("{halts} halts"));
    let missing = counted.missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let found = if missing.is_empty() { "everything loads".to_owned() } else { missing };
    checks.that(format!("{name}: what cannot be traced is told with its reason"), !found.is_empty(), found);
    guest.power_off()
}

/// What `gleaner diagnose` says of a workload whose threads wake each other.
fn diagnose(guest: &Guest) -> Result<Snapshot> {
    let command =
        ["gleaner", "diagnose", "--json", "--", "gleaner", "workload", "request-response", "--for", "2s"];
    let text = guest.succeed(Step::new(&command))?;
    // The workload's own words may come first.
    let json = &text[text.find("{\n").unwrap_or(0)..];
    let counted = |json| {
        let mut report: serde_json::Value = serde_json::from_str(json)?;
        serde_json::from_value(report["counted"].take())
    };
    counted(json).map_err(|error| Error::Protocol {
        who: format!("`gleaner diagnose --json` in VM `{}`", guest.spec().name),
        what: format!("{error}: {}", &text[..text.len().min(300)]),
    })
}
