//! Claim 6, in a guest with systemd: the Debian package installs, its unit makes a packaged service faster with the reason in
//! `gleaner status`, and stopping, upgrading and removing it leave everything as before.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::claims::{Checks, Claim, ClaimHost, Target, doctor};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, Step, VmSpec};

pub(super) const CLAIM: Claim = Claim {
    name: "package",
    group: 6,
    says: "apt installs the Debian package, its unit makes a packaged redis faster and says why, and stopping, upgrading and \
           removing it leave everything as before",
    quick: false,
    place: ClaimHost::Emulated,
    prove,
};

/// The packaged service that is helped.
const REDIS: &str = "redis-server.service";
/// Where the package is in the guest.
const DEB: &str = "/root/gleaner.deb";
/// Requests that a client with one connection sends in a sample: about three seconds here.
const REQUESTS: &str = "20000";
/// Pairs of samples.
const ROUNDS: usize = 5;
/// Longer than anything takes here.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Does what the packages' own scripts would for redis, which this image has only unpacked.
const REDIS_USER: &str = "grep -q ^redis: /etc/passwd || { \
    echo 'redis:x:110:110::/var/lib/redis:/usr/sbin/nologin' >>/etc/passwd; echo 'redis:x:110:' >>/etc/group; }; \
    install -d -o redis -g redis /var/lib/redis /var/log/redis; chown -R redis:redis /etc/redis; \
    chgrp redis /etc/redis/redis.conf";
/// Waits until the unit has fewer vCPUs than the machine.
const CONSOLIDATED: &str = "until gleaner status --json | grep -A40 '\"redis-server.service\"' | grep -q '\"active\": \"0\"'; \
    do sleep 0.2; done";

fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let deb = package()?;
    let guest = lab.boot(VmSpec::new("package", Image::Systemd, Kernel::V6_12, Cpus::flat(4)))?;
    guest.write(DEB, 0o644, &fs::read(&deb).map_err(Error::file("read", &deb))?)?;
    let before = doctor::levers(&guest)?;
    install(&guest, checks)?;
    shell(&guest, REDIS_USER)?;
    shell(&guest, &format!("systemctl start {REDIS} && until redis-cli ping; do sleep 0.2; done"))?;
    help(&guest, checks, &before)?;
    upgrade(&guest, checks, &before)?;
    remove(&guest, checks, &before)?;
    guest.power_off()
}

/// The newest package that `make deb` has built.
fn package() -> Result<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debian");
    let built = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_gleaner = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("gleaner_") && name.ends_with(".deb")
    };
    let newest =
        built.filter(of_gleaner).max_by_key(|path| fs::metadata(path).and_then(|m| m.modified()).ok());
    newest.ok_or_else(|| Error::NoBinary { path: dir.join("gleaner_*.deb (`make deb` builds it)") })
}

fn shell(guest: &Guest, line: &str) -> Result<String> {
    guest.succeed(Step::shell(line).timeout(TIMEOUT))
}

fn install(guest: &Guest, checks: &mut Checks) -> Result<()> {
    let installed = guest.run(Step::shell(&format!("apt-get install -y {DEB}")).timeout(TIMEOUT))?;
    checks.that(
        "apt installs it",
        installed.success(),
        format!("{} {}", installed.exit, installed.errors().trim()),
    );
    let state = shell(guest, "systemctl is-enabled gleanerd; systemctl is-active gleanerd; true")?;
    checks.equal("it is neither enabled nor started", &state.trim(), &"disabled\ninactive");
    let group = shell(guest, "grep -c ^gleaner: /etc/group; true")?;
    checks.equal("the group of the control socket exists", &group.trim(), &"1");
    // Measures the wake-up costs now, since that happens once per boot and would disturb what follows.
    guest.succeed(Step::new(&["/usr/bin/gleaner", "doctor", "--quick"]).timeout(TIMEOUT)).map(drop)
}

/// Requests per second of one connection.
fn rate(guest: &Guest) -> Result<f64> {
    let line = format!("redis-benchmark -t get -c 1 -n {REQUESTS} --csv | tail -n 1");
    let text = shell(guest, &line)?;
    let rate = text.split(',').nth(1).and_then(|field| field.trim_matches('"').parse().ok());
    rate.ok_or_else(|| Error::Packages(format!("redis-benchmark printed `{}`", text.trim())))
}

fn help(guest: &Guest, checks: &mut Checks, before: &str) -> Result<()> {
    shell(guest, "systemctl start gleanerd")?;
    let load = format!(
        "timeout 120 redis-benchmark -t get -c 1 -n 100000000 -q >/dev/null 2>&1 & \
        timeout 90 sh -c '{}'; ok=$?; kill %1; exit $ok",
        CONSOLIDATED.replace('\'', "'\\''")
    );
    let found = guest.run(Step::shell(&load).timeout(TIMEOUT))?;
    checks.that("redis is engaged and runs on one vCPU", found.success(), status(guest)?);
    let (mut helped, mut untouched) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        shell(guest, "gleaner pause comparison")?;
        untouched.push(rate(guest)?);
        shell(guest, "gleaner resume")?;
        // It is known by now: the first sample shows how soon it is in force.
        rate(guest)?;
        helped.push(rate(guest)?);
    }
    let ratios: Vec<f64> =
        helped.iter().zip(&untouched).map(|(helped, untouched)| helped / untouched).collect();
    checks.ratios("redis with one connection, to the paused daemon", &ratios, "×", Target::AtLeast(1.2));
    let status = status(guest)?;
    checks.that("status names the service", status.contains(REDIS), status.clone());
    let why = shell(guest, &format!("gleaner why {REDIS}"))?;
    checks.that(
        "why has the decisions",
        why.contains("kept") || why.contains("in force"),
        last_lines(&why, 3),
    );
    let property = shell(guest, &format!("systemctl show -p AllowedCPUs --value {REDIS}"))?;
    checks.that("systemctl shows its vCPUs", true, property.trim());
    shell(guest, "systemctl stop gleanerd")?;
    as_before(guest, checks, "stopped", before)?;
    let property = shell(guest, &format!("systemctl show -p AllowedCPUs --value {REDIS}"))?;
    checks.equal("stopped: AllowedCPUs is not set", &property.trim(), &"");
    let security = shell(guest, "systemd-analyze security gleanerd.service --no-pager | tail -n 1; true")?;
    checks.that("systemd-analyze security", true, security.trim());
    Ok(())
}

fn upgrade(guest: &Guest, checks: &mut Checks, before: &str) -> Result<()> {
    shell(guest, "systemctl start gleanerd")?;
    let old = shell(guest, "systemctl show -p MainPID --value gleanerd")?;
    let output = guest.run(Step::shell(&format!("apt-get install -y --reinstall {DEB}")).timeout(TIMEOUT))?;
    checks.that("upgrade over a running daemon succeeds", output.success(), output.errors().trim());
    let new = shell(guest, "systemctl show -p MainPID --value gleanerd")?;
    checks.that(
        "upgrade restarts it",
        new != old && new.trim() != "0",
        format!("{} → {}", old.trim(), new.trim()),
    );
    shell(
        guest,
        "systemctl kill -s KILL gleanerd; until systemctl is-active -q gleanerd; do sleep 0.2; done",
    )?;
    checks.that("after SIGKILL systemd has it restored and started again", true, "");
    shell(guest, "systemctl stop gleanerd")?;
    as_before(guest, checks, "upgraded, killed and stopped", before)
}

fn remove(guest: &Guest, checks: &mut Checks, before: &str) -> Result<()> {
    shell(guest, "systemctl start gleanerd")?;
    let output = guest.run(Step::shell("apt-get remove -y gleaner").timeout(TIMEOUT))?;
    checks.that("remove succeeds while it runs", output.success(), output.errors().trim());
    as_before(guest, checks, "removed", before)?;
    let left = shell(guest, "ls -d /etc/gleaner/gleaner.toml /var/lib/gleaner 2>/dev/null; true")?;
    checks.that("remove keeps configuration and memory", left.lines().count() == 2, left.trim());
    shell(guest, "apt-get purge -y gleaner")?;
    let left = shell(guest, "ls -d /etc/gleaner /var/lib/gleaner /run/gleaner 2>/dev/null; true")?;
    checks.equal("purge leaves nothing", &left.trim(), &"");
    Ok(())
}

fn status(guest: &Guest) -> Result<String> {
    Ok(guest.run(Step::new(&["gleaner", "status"]))?.text())
}

fn last_lines(text: &str, n: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(n)..].join(" | ")
}

/// Checks that the levers are as before.
fn as_before(guest: &Guest, checks: &mut Checks, what: &str, before: &str) -> Result<()> {
    let after = doctor::levers(guest)?;
    let same = before == after;
    let found = if same { "equal".to_owned() } else { format!("{before} became {after}") };
    checks.that(format!("{what}: the levers are as before"), same, found);
    Ok(())
}
