//! The nested KVM host, in which this program proves claims that need real KVM guests.

use std::fs;
use std::time::Duration;

use crate::claims::packaged::{in_host, newest};
use crate::claims::{Check, Checks, Claim, ClaimHost, Target, soak};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, Step, VmSpec};

/// Timeout of a claim in the host: three times what the longest one takes beside another.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// Where time is counted in instructions, a second takes several.
const COUNTED_SECOND: u32 = 4;

/// Where a claim in the host leaves what it recorded: files of text. They are kept with the lab's cache.
pub(super) const RECORDS: &str = "/tmp/records";

pub(super) const BOOT: Claim = Claim {
    name: "nested-host",
    group: 0,
    says: "a nested KVM host boots guests; they know KVM",
    // Its boots are there for their times, which `make promises` judges; on a busy machine they say nothing.
    quick: false,
    place: ClaimHost::NestedHost,
    prove: boot,
};

/// Proves a claim in a nested host, with 4 pCPUs if the claim does not say how many, and adds its checks to `checks`.
pub(super) fn inside(lab: &Lab, claim: &Claim, checks: &mut Checks) -> Result<()> {
    let host = |pcpus| VmSpec::new("host", Image::Host, Kernel::V7, pcpus);
    let mut spec = match claim.place {
        ClaimHost::CountedHost { pcpus, n } => host(pcpus).counted(n),
        ClaimHost::PackagedHost { n } => host(Cpus::flat(4)).counted(n).with_systemd_guests(),
        ClaimHost::Emulated | ClaimHost::NestedHost => host(Cpus::flat(4)),
    };
    spec.guests = vec![Kernel::V6_12, Kernel::V7];
    let host = lab.boot(spec)?;
    if matches!(claim.place, ClaimHost::PackagedHost { .. }) {
        let deb = newest("gleaner")?;
        host.write(
            &in_host("gleaner").to_string_lossy(),
            0o644,
            &fs::read(&deb).map_err(Error::file("read", &deb))?,
        )?;
    }
    let time = soak::time()?;
    let short = if lab.is_short() { &["--short"][..] } else { &[] };
    let step = Step::new(&[&["gleaner-lab", "claims", "--json", "--only", claim.name], short].concat())
        .timeout(TIMEOUT + COUNTED_SECOND * time)
        .env(soak::VARIABLE, &time.as_secs().to_string());
    let output = host.run(step)?;
    // Fails if a check does not hold; the outcomes say more.
    let outcomes: Vec<super::Outcome> =
        serde_json::from_slice(&output.stdout).map_err(|error| Error::Step {
            vm: "host".to_owned(),
            step: format!("gleaner-lab claims --only {}", claim.name),
            exit: output.exit.to_string(),
            output: format!("{error}: {}{}", output.text(), output.errors()),
        })?;
    keep_records(lab, &host)?;
    for outcome in outcomes {
        outcome.checks.into_iter().for_each(|check: Check| checks.add(check));
        if let Some(error) = outcome.error {
            host.keep_console()?;
            return Err(Error::Guest { vm: "host".to_owned(), error });
        }
    }
    host.power_off()
}

fn keep_records(lab: &Lab, host: &Guest) -> Result<()> {
    let names = host.run(["ls", RECORDS])?;
    for name in names.text().lines() {
        let to = lab.records().join(name);
        let content = host.read(&format!("{RECORDS}/{name}"))?;
        fs::write(&to, content).map_err(Error::file("write", &to))?;
    }
    Ok(())
}

fn boot(lab: &Lab, checks: &mut Checks) -> Result<()> {
    for kernel in [Kernel::V6_12, Kernel::V7] {
        let guest = lab.boot(VmSpec::new("inner", Image::Tiny, kernel, Cpus::flat(2)))?;
        let seconds = guest.boot_time().as_secs_f64();
        let what = format!("nested guest, Linux {kernel}: boots");
        checks.values(what, &[seconds], "s", Target::Reported);
        let report: gleaner_proto::doctor::Report = super::doctor::report(&guest)?;
        let what = format!("nested guest, Linux {kernel}: the hypervisor is KVM");
        checks.that(what, report.machine.hypervisor.contains("KVM"), report.machine.hypervisor);
        guest.power_off()?;
    }
    Ok(())
}
