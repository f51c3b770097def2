//! Claim 6, in a guest with systemd: the Debian package installs without the network, its daemon makes a service faster by the
//! service's own property of systemd and says why, and stopping, killing, upgrading and removing it leave everything as before.
//!
//! An emulated machine has no cpuidle driver, so idle vCPUs cannot poll, and fewer vCPUs help only what has both ends of a
//! hand-off in one unit. So the service that is helped is one whose two threads hand requests to each other. The packaged redis,
//! whose client is elsewhere, is watched and explained here, and helped in a KVM guest ([`polling`]).

mod deb;
mod help;
mod lifecycle;
mod polling;
mod unit;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::claims::packaged::{newest, run, security, shell, version};
use crate::claims::{Checks, Claim, ClaimHost, doctor};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, VmSpec};

pub(super) use polling::CLAIM as REDIS_IN_KVM;

pub(super) const CLAIM: Claim = Claim {
    name: "package",
    group: 6,
    says: "apt installs the Debian package, its daemon makes a service faster and says why, and stopping, killing, upgrading and \
           removing it leave everything as before",
    quick: false,
    place: ClaimHost::Emulated,
    prove,
};

/// The service that is helped, and its unit.
const SERVICE: &str = "pair";
const UNIT: &str = "/etc/systemd/system/pair.service";
const UNIT_TEXT: &str = "[Service]\nExecStart=/lab/bin/gleaner workload request-response --for 3600s\n";
/// The packaged service beside it.
const REDIS: &str = "redis-server";
const SERVICES: &[&str] = &[SERVICE, REDIS];
/// Does what the packages' own scripts would for redis, which this image has only unpacked, and starts it.
const START_REDIS: &str = "echo 'redis:x:110:110::/var/lib/redis:/usr/sbin/nologin' >>/etc/passwd; \
    echo 'redis:x:110:' >>/etc/group; install -d -o redis -g redis /var/lib/redis /var/log/redis; \
    chown -R redis:redis /etc/redis; systemctl start redis-server; until redis-cli ping; do sleep 0.2; done";
/// Where the two versions of the package are in the guest.
const DEB: &str = "/root/gleaner.deb";
const OLDER_DEB: &str = "/root/gleaner-previous.deb";
/// Time for what the daemon decides by measuring, on a busy machine.
const DECIDES_WITHIN: Duration = Duration::from_secs(60);
/// Time between two looks at its status.
const INTERVAL: Duration = Duration::from_millis(300);

fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let deb = newest("gleaner")?;
    let guest = &lab.boot(VmSpec::new("package", Image::Systemd, Kernel::V6_12, Cpus::flat(2)))?;
    guest.write(DEB, 0o644, &fs::read(&deb).map_err(Error::file("read", &deb))?)?;
    guest.write(OLDER_DEB, 0o644, &deb::older(&deb)?)?;
    guest.write(UNIT, 0o644, UNIT_TEXT.as_bytes())?;
    lifecycle::install(guest, checks)?;
    shell(guest, START_REDIS)?;
    // Measures the wake-up costs now: once per boot, and what follows would be in the way.
    shell(guest, "gleaner doctor --quick")?;
    shell(guest, &format!("systemctl daemon-reload && systemctl start {SERVICE}"))?;
    let machine = &Machine { guest, before: levers(guest, SERVICES)? };
    security(guest, checks, "gleanerd")?;
    help::service(machine, checks)?;
    help::redis(machine, checks)?;
    unit::alarm(guest, checks)?;
    unit::access(guest, checks)?;
    unit::log(guest, checks)?;
    unit::reload(machine, checks)?;
    unit::faults(machine, checks)?;
    unit::metrics(guest, checks)?;
    lifecycle::remove(machine, checks)?;
    lifecycle::upgrade(machine, checks, &version(&deb)?)?;
    lifecycle::purge(machine, checks)
}

/// The machine with its services, and its levers before the daemon was first started.
struct Machine<'a> {
    guest: &'a Guest,
    before: String,
}

impl Machine<'_> {
    /// Checks that the levers are as before.
    fn as_before(&self, checks: &mut Checks, what: &str) -> Result<()> {
        self.compare(checks, what, &levers(self.guest, SERVICES)?);
        Ok(())
    }

    fn compare(&self, checks: &mut Checks, what: &str, after: &str) {
        let same = self.before == after;
        let found = if same { "equal".to_owned() } else { format!("{} became {after}", self.before) };
        checks.that(format!("{what}: the levers are as before"), same, found);
    }

    /// Waits until the service runs on fewer vCPUs, proven. Returns what the status says of it then.
    fn until_helped(&self) -> Result<Found> {
        self.until(|of| {
            of["state"] == "engaged" && of["active"] != of["allowed"] && !of["evidence"].is_null()
        })
    }

    /// Waits until the status says so of the service.
    fn until(&self, is: impl Fn(&Value) -> bool) -> Result<Found> {
        let end = Instant::now() + DECIDES_WITHIN;
        loop {
            let status = status(self.guest)?;
            let of = workload(&status, SERVICE).cloned().unwrap_or_default();
            let (holds, pid) = (is(&of), status["pid"].as_u64());
            if holds {
                return Ok(Found { holds, says: describe(&of), pid });
            }
            if Instant::now() > end {
                let why = run(self.guest, &format!("gleaner why {SERVICE}"))?;
                return Ok(Found { holds, says: format!("{}\n{}", describe(&of), why.text()), pid });
            }
            thread::sleep(INTERVAL);
        }
    }
}

/// What the status said in the end.
struct Found {
    holds: bool,
    says: String,
    pid: Option<u64>,
}

/// The status as JSON; nothing where no daemon answers.
fn status(guest: &Guest) -> Result<Value> {
    let output = run(guest, "gleaner status --all --json")?;
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    Ok(json["status"].clone())
}

/// A workload in the status.
fn workload<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    status["workloads"].as_array()?.iter().find(|workload| workload["name"] == name)
}

/// What the status says of a workload, in a line.
fn describe(workload: &Value) -> String {
    let fields = ["state", "active", "allowed", "trial", "evidence", "reason"];
    let present = fields.into_iter().filter_map(|name| {
        let text = workload[name].as_str()?;
        Some(format!("{name}: {text}"))
    });
    let line = present.collect::<Vec<_>>().join("; ");
    if line.is_empty() { "the status does not have it".to_owned() } else { line }
}

/// Everything here that Gleaner changes or could leave behind.
fn levers(guest: &Guest, services: &[&str]) -> Result<String> {
    let of_systemd = shell(
        guest,
        &format!(
            "for unit in {}; do systemctl show -p AllowedCPUs $unit; \
             cat /proc/$(systemctl show -p MainPID --value $unit)/task/*/status | grep Cpus_allowed_list | sort -u; \
             ls -d /run/systemd/*/$unit.service.d 2>/dev/null; done; true",
            services.join(" ")
        ),
    )?;
    // The kernel refuses to empty the set of a group with processes (`validate_change` in kernel/cgroup/cpuset.c): then
    // every CPU that can ever exist is in it, which limits nothing.
    let all = format!("/cpuset.cpus:{}", shell(guest, "cat /sys/devices/system/cpu/possible")?);
    let of_groups = doctor::levers(guest)?;
    let limits = of_groups.lines().filter(|line| !line.ends_with(&all)).collect::<Vec<_>>().join("\n");
    Ok(limits + &of_systemd)
}

/// The positive number that a shell script prints.
fn number(guest: &Guest, script: &str) -> Result<f64> {
    let text = shell(guest, script)?;
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0);
    number.ok_or_else(|| Error::Protocol { who: format!("`{script}`"), what: text })
}
