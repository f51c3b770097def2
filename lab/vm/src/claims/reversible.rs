//! Claim 4, in a guest with systemd: whatever happens to the machine while Gleaner is at work, its levers are restored
//! exactly, and other programs' changes are kept.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::Exit;
use crate::claims::{Checks, Claim, ClaimHost, doctor};
use crate::error::Result;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, Step, VmSpec};

pub(super) const CLAIM: Claim = Claim {
    name: "reversible",
    group: 4,
    says: "hotplug, the end of a control group, SIGKILL and systemd's AllowedCPUs at work: everything is put back, and \
           only what is still Gleaner's",
    quick: false,
    place: ClaimHost::Emulated,
    prove,
};

/// Waits until a group that Gleaner controls has only vCPU 0, or 0 and 1.
const CONSOLIDATED: &str = "until find /sys/fs/cgroup -name cpuset.cpus -exec cat {} + 2>/dev/null \
     | grep -qx -e 0 -e 0-1; do sleep 0.05; done";
/// Timeout: longer than anything takes here.
const TIMEOUT: Duration = Duration::from_secs(60);

fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let guest = lab.boot(VmSpec::new("reversible", Image::Systemd, Kernel::V6_12, Cpus::flat(4)))?;
    // Measures the wake-up costs now, since that happens once per boot and must not disturb what follows.
    doctor::report(&guest)?;
    hotplug(&guest, checks)?;
    sigkill(&guest, checks)?;
    attachment(&guest, checks)?;
    allowed_cpus(&guest, checks)?;
    deletion(&guest, checks)?;
    guest.power_off()
}

fn consolidated(guest: &Guest) -> Result<()> {
    guest.succeed(Step::shell(CONSOLIDATED)).map(drop)
}

/// Checks that the levers are as before.
fn as_before(guest: &Guest, checks: &mut Checks, what: &str, before: &str) -> Result<()> {
    let after = doctor::levers(guest)?;
    let same = before == after;
    let found = if same { "equal".to_owned() } else { format!("{before} became {after}") };
    checks.that(format!("{what}: the levers are as before"), same, found);
    Ok(())
}

fn hotplug(guest: &Guest, checks: &mut Checks) -> Result<()> {
    let before = doctor::levers(guest)?;
    let run = [
        "gleaner",
        "run",
        "-q",
        "--fixed",
        "consolidate:2",
        "--",
        "gleaner",
        "workload",
        "pipeline",
        "--for",
        "6s",
    ];
    let job = guest.start(Step::new(&run).timeout(TIMEOUT))?;
    consolidated(guest)?;
    // One of the active vCPUs, and one of the inactive ones.
    for state in ["0", "1"] {
        for cpu in [1, 3] {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
            guest.write(&path, 0o644, state.as_bytes())?;
        }
    }
    let output = job.wait()?;
    checks.that("hotplug: the run goes on to its end", output.success(), describe(&output));
    as_before(guest, checks, "hotplug", &before)
}

fn sigkill(guest: &Guest, checks: &mut Checks) -> Result<()> {
    let before = doctor::levers(guest)?;
    let run = [
        "gleaner",
        "run",
        "-q",
        "--fixed",
        "consolidate:1",
        "--",
        "gleaner",
        "workload",
        "pipeline",
        "--for",
        "30s",
    ];
    let job = guest.start(Step::new(&run).timeout(TIMEOUT))?;
    consolidated(guest)?;
    let gleaner = guest.read_text("/run/gleaner/holder")?;
    let home = guest.read_text(&format!("/proc/{gleaner}/cgroup"))?;
    let orphan = guest.succeed(Step::new(&["pgrep", "-P", &gleaner]))?.trim().to_owned();
    guest.succeed(Step::new(&["kill", "-KILL", &gleaner]))?;
    let killed = job.wait()?;
    checks.equal("SIGKILL: gleaner is killed", &killed.exit, &Exit::Signal(9));
    let left = doctor::levers(guest)?;
    checks.that("SIGKILL: it leaves something", left != before, "levers differ");
    let restored = guest.run(Step::new(&["gleaner", "restore"]))?;
    checks.that("SIGKILL: restore succeeds beside the orphan", restored.success(), describe(&restored));
    as_before(guest, checks, "SIGKILL, the orphan at work", &before)?;
    let place = guest.read_text(&format!("/proc/{orphan}/cgroup"))?;
    checks.equal("SIGKILL: the orphan is back in the group that it came from", &place, &home);
    let status = guest.read_text(&format!("/proc/{orphan}/status"))?;
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::trim);
    checks.equal("SIGKILL: the orphan may use every vCPU", &cpus, &Some("0-3"));
    guest.succeed(Step::new(&["kill", "-KILL", &orphan]))?;
    as_before(guest, checks, "SIGKILL, after the orphan", &before)
}

/// Starts a workload as a systemd unit, with Gleaner attached.
fn unit(guest: &Guest, name: &str) -> Result<String> {
    let command = ["systemd-run", "-q", "--collect", "--unit", name, "/lab/bin/gleaner", "workload"];
    guest.succeed(Step::new(&[&command[..], &["pipeline", "--for", "50s"]].concat()))?;
    Ok(format!("/sys/fs/cgroup/system.slice/{name}.service"))
}

/// Attaches Gleaner to a unit that goes on afterwards, and checks that its processes are left as before.
fn attachment(guest: &Guest, checks: &mut Checks) -> Result<()> {
    let group = unit(guest, "attached")?;
    let attach = ["gleaner", "attach", "-q", "--fixed", "consolidate:1", "--cgroup", &group];
    let job = guest.start(Step::new(&attach).timeout(TIMEOUT))?;
    consolidated(guest)?;
    job.signal(Signal::SIGINT)?;
    let output = job.wait()?;
    checks.that("attach: it ends in order", output.success(), describe(&output));
    let effective = guest.read_text(&format!("{group}/cpuset.cpus.effective"))?;
    checks.equal("attach: the unit at work may use every vCPU again", &effective, &"0-3".to_owned());
    guest.succeed(Step::new(&["systemctl", "stop", "attached.service"])).map(drop)
}

fn allowed_cpus(guest: &Guest, checks: &mut Checks) -> Result<()> {
    let group = unit(guest, "governed")?;
    let attach = ["gleaner", "attach", "-q", "--fixed", "consolidate:1", "--cgroup", &group];
    let job = guest.start(Step::new(&attach).timeout(TIMEOUT))?;
    consolidated(guest)?;
    guest.succeed(Step::new(&[
        "systemctl",
        "set-property",
        "--runtime",
        "governed.service",
        "AllowedCPUs=1-2",
    ]))?;
    let own = guest.read_text(&format!("{group}/cpuset.cpus"))?;
    checks.equal("AllowedCPUs: systemd's change is in force", &own, &"1-2".to_owned());
    job.signal(Signal::SIGINT)?;
    let output = job.wait()?;
    checks.that("AllowedCPUs: attach ends in order", matches!(output.exit, Exit::Code(_)), describe(&output));
    let own = guest.read_text(&format!("{group}/cpuset.cpus"))?;
    checks.equal("AllowedCPUs: systemd's change stays", &own, &"1-2".to_owned());
    guest.succeed(Step::new(&["systemctl", "stop", "governed.service"])).map(drop)
}

fn deletion(guest: &Guest, checks: &mut Checks) -> Result<()> {
    let before = doctor::levers(guest)?;
    let group = unit(guest, "doomed")?;
    let attach = ["gleaner", "attach", "-q", "--fixed", "consolidate:1", "--cgroup", &group];
    let job = guest.start(Step::new(&attach).timeout(TIMEOUT))?;
    consolidated(guest)?;
    guest.succeed(Step::new(&["systemctl", "kill", "--signal=KILL", "doomed.service"]))?;
    let output = job.wait()?;
    let ended = matches!(output.exit, Exit::Code(_));
    checks.that("a deleted control group: attach ends by itself", ended, describe(&output));
    as_before(guest, checks, "a deleted control group", &before)
}

fn describe(output: &crate::Output) -> String {
    format!("{} {}", output.exit, output.errors().trim())
}
