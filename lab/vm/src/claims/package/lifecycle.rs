//! The package comes, is upgraded while its daemon is at work, and goes.

use super::{DEB, Machine, OLDER_DEB, SERVICE, deb};
use crate::claims::Checks;
use crate::claims::packaged::{self, APT, run, shell};
use crate::error::Result;
use crate::vm::Guest;

/// A configuration file that somebody has added.
const ADDED: &str = "/etc/gleaner/gleaner.toml.d/60-lab.toml";
/// What a purge is to leave nothing of.
const PLACES: &str = "ls -d /usr/bin/gleaner /usr/sbin/gleanerd /usr/lib/systemd/system/gleanerd* /etc/gleaner \
     /var/lib/gleaner /run/gleaner /etc/systemd/system/*/gleanerd* 2>/dev/null; true";

/// Installs the package, and checks that it changes nothing by itself.
pub(super) fn install(guest: &Guest, checks: &mut Checks) -> Result<()> {
    packaged::install(guest, checks, "gleaner", DEB, "gleanerd")?;
    let group = shell(guest, "grep -c ^gleaner: /etc/group; true")?;
    checks.equal("the group of the control socket exists", &group.as_str(), &"1");
    Ok(())
}

/// Removes the package while it helps.
pub(super) fn remove(machine: &Machine<'_>, checks: &mut Checks) -> Result<()> {
    let guest = machine.guest;
    guest.write(ADDED, 0o644, b"objective = \"latency\"\n")?;
    shell(guest, "systemctl enable -q --now gleanerd")?;
    let helped = machine.until_helped()?;
    let output = run(guest, &format!("{APT} remove gleaner"))?;
    let removed = output.success() && helped.holds;
    checks.that("apt removes it while it helps", removed, helped.says + output.errors().trim());
    machine.as_before(checks, "removed")?;
    let kept = format!(
        "ls -d /etc/gleaner/gleaner.toml {ADDED} /var/lib/gleaner /usr/sbin/gleanerd 2>/dev/null; true"
    );
    let expected = format!("/etc/gleaner/gleaner.toml\n{ADDED}\n/var/lib/gleaner");
    checks.equal("removed: configuration and memory stay, programs do not", &shell(guest, &kept)?, &expected);
    Ok(())
}

/// Installs the older version over what is left of the package, and replaces it by the newer one while it helps.
pub(super) fn upgrade(machine: &Machine<'_>, checks: &mut Checks, version: &str) -> Result<()> {
    let guest = machine.guest;
    shell(guest, &format!("{APT} purge gleaner && {APT} install {OLDER_DEB} && systemctl start gleanerd"))?;
    let older = machine.until_helped()?;
    checks.that("upgrade: the older version helps", older.holds, older.says);
    let output = run(guest, &format!("{APT} install {DEB}"))?;
    let said = output.text() + &output.errors();
    let line = said.lines().find(|line| line.starts_with("Unpacking gleaner")).unwrap_or(&said);
    let upgraded = output.success() && line.contains(version) && line.contains(" over ");
    checks.that("upgrade: apt replaces it while it helps", upgraded, line);
    let newer = machine.until_helped()?;
    let restarted = newer.pid.is_some() && newer.pid != older.pid;
    let pids = format!("{} → {}", older.pid.unwrap_or_default(), newer.pid.unwrap_or_default());
    checks.that("upgrade: the daemon is started again", restarted, pids);
    checks.that("upgrade: the newer version helps", newer.holds, newer.says);
    let conf = shell(guest, &format!("grep -c '{}' /etc/gleaner/gleaner.toml; true", deb::OLD_LINE))?;
    checks.equal("upgrade: an unchanged configuration file is replaced", &conf.as_str(), &"0");
    shell(guest, "systemctl stop gleanerd")?;
    machine.as_before(checks, "upgraded and stopped")
}

/// Purges the package.
pub(super) fn purge(machine: &Machine<'_>, checks: &mut Checks) -> Result<()> {
    let guest = machine.guest;
    guest.write(ADDED, 0o644, b"objective = \"latency\"\n")?;
    shell(guest, "systemctl enable -q --now gleanerd")?;
    let output = run(guest, &format!("{APT} purge gleaner"))?;
    checks.that("apt purges it while it runs", output.success(), output.errors().trim());
    machine.as_before(checks, "purged")?;
    checks.equal("purged: nothing is left", &shell(guest, PLACES)?.as_str(), &"");
    let failed = shell(guest, "systemctl list-units --failed --plain --no-legend 'gleaner*'; true")?;
    checks.equal("purged: systemd has no failed unit of it", &failed.as_str(), &"");
    let service = shell(guest, &format!("systemctl show -p NRestarts -p ActiveState {SERVICE}"))?;
    checks.equal("the service has run all the time", &service.as_str(), &"NRestarts=0\nActiveState=active");
    Ok(())
}
