//! The package goes.

use super::served::until;
use super::{Machine, run, shell};
use crate::claims::Checks;
use crate::claims::packaged::APT;
use crate::error::Result;

/// Lists the package's files, which dpkg knows until the removal.
const FILES: &str = "/root/gleaner-host.files";
/// What nothing is to be left of: its files, links that enable the unit, and what systemd's helpers keep.
const PLACES: &str = "ls -d /etc/systemd/system/*/gleaner-host* /etc/systemd/system/gleaner-host* /run/gleaner-host \
     /var/lib/systemd/deb-systemd-helper-*/gleaner-host* 2>/dev/null; \
     while read -r file; do if [ -e \"$file\" ] && [ ! -d \"$file\" ]; then echo \"$file\"; fi; done";
const LIMIT: &str = "cat /sys/module/kvm/parameters/halt_poll_ns";
/// A limit that is never the kernel's own.
const HELD: &str = "1001";

/// Removes the package while it serves, and while a limit is in force that a killed `halt-poll set` left.
pub(super) fn remove(machine: &Machine<'_>, checks: &mut Checks) -> Result<()> {
    let host = machine.host;
    let found = shell(host, LIMIT)?;
    let leave = format!(
        "gleaner-host halt-poll set {HELD} >/dev/null 2>&1 & \
         until [ $({LIMIT}) = {HELD} ]; do sleep 0.1; done; kill -KILL $!; {LIMIT}; ls -A /run/gleaner-host"
    );
    let left = shell(host, &leave)?;
    let is_left = left.starts_with(HELD) && left.lines().any(|line| line == "leases");
    checks.that("a killed halt-poll leaves a limit and a lease", is_left, left.replace('\n', " "));
    shell(host, "systemctl start gleaner-host")?;
    let serves = until(host, |now| now.value("gleaner_host_vms").is_some())?;
    shell(host, &format!("dpkg -L gleaner-host >{FILES}"))?;
    let is_known = host.read_text(FILES)?.lines().any(|line| line == "/usr/sbin/gleaner-host");
    checks.that("dpkg knows its files", is_known, "");
    let output = run(host, &format!("{APT} remove gleaner-host"))?;
    checks.that(
        "apt removes it while it serves",
        output.success() && serves.holds,
        serves.now.line("gleaner_host_vms") + output.errors().trim(),
    );
    let state = shell(host, "systemctl is-active gleaner-host; pgrep -c '^gleaner-host'; true")?;
    checks.equal("removed: it does not run", &state.as_str(), &"inactive\n0");
    checks.equal("removed: halt_poll_ns is as before", &shell(host, LIMIT)?, &found);
    let leases = shell(host, "cat /run/gleaner-host/leases 2>/dev/null; true")?;
    checks.equal("removed: no lease is left", &leases.as_str(), &"");
    machine.as_before(checks, "removed")
}

/// Purges what is left of it.
pub(super) fn purge(machine: &Machine<'_>, checks: &mut Checks) -> Result<()> {
    let host = machine.host;
    let output = run(host, &format!("{APT} purge gleaner-host"))?;
    checks.that("apt purges it", output.success(), output.errors().trim());
    checks.equal("purged: nothing is left", &shell(host, &format!("{PLACES} <{FILES}"))?.as_str(), &"");
    let failed = shell(host, "systemctl list-units --failed --plain --no-legend 'gleaner*'; true")?;
    checks.equal("purged: systemd has no failed unit of it", &failed.as_str(), &"");
    Ok(())
}
