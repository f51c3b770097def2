//! Claim 6, in a KVM guest with systemd: the daemon of the installed package makes the packaged redis faster for a client outside
//! the guest, with nothing configured.
//!
//! In a nested host, since only a guest of KVM has a cpuidle driver whose idle vCPUs can poll. As on a machine whose host does not
//! recommend it, the driver is there and lets no vCPU poll by itself.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::{
    DEB, DECIDES_WITHIN, INTERVAL, REDIS, START_REDIS, describe, levers, lifecycle, number, status, workload,
};
use crate::claims::packaged::{newest, shell};
use crate::claims::{Checks, Claim, ClaimHost, Target};
use crate::error::{Error, Result};
use crate::image::{GUESTS_DISK, Image};
use crate::kernel::Kernel;
use crate::tool;
use crate::vm::{Cpus, GUEST_ADDRESS, Guest, Lab, VmSpec};

pub(in crate::claims) const CLAIM: Claim = Claim {
    name: "package-redis",
    group: 6,
    says: "in a KVM guest the installed package's daemon makes the packaged redis faster for a client outside with nothing \
           configured and says why, and stopping it leaves everything as before",
    quick: false,
    place: ClaimHost::PackagedHost { n: 1 },
    prove,
};

/// Samples with the daemon and without, in turn.
const ROUNDS: usize = 3;
/// Lets redis accept clients from other machines, as an administrator would.
const OPEN_REDIS: &str = "redis-cli config set protected-mode no && redis-cli config set bind '*'";
/// Where the host mounts the guest's disk, whose programs it runs.
const DISK: &str = "/run/disk";
/// How many requests redis answers in five seconds, so that a trial that falls into them weighs little.
const REQUESTS: &str = "count() { redis-cli info stats | tr -d '\\r' | sed -n 's/^total_commands_processed://p'; }; \
     a=$(count); sleep 5; b=$(count); echo $((b - a))";
/// The longest that an idle vCPU polls.
const LIMIT: &str = "cat /sys/module/haltpoll/parameters/guest_halt_poll_ns";

fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let spec = VmSpec::new("redis", Image::Systemd, Kernel::V6_12, Cpus::flat(2));
    let spec = spec.cmdline(&["cpuidle_haltpoll.force=1", "haltpoll.guest_halt_poll_ns=0"]).linked();
    let guest = &lab.boot(spec)?;
    let deb = newest("gleaner")?;
    guest.write(DEB, 0o644, &fs::read(&deb).map_err(Error::file("read", &deb))?)?;
    lifecycle::install(guest, checks)?;
    shell(guest, START_REDIS)?;
    shell(
        guest,
        &format!("ip address add {GUEST_ADDRESS}/24 dev eth0 && ip link set eth0 up && {OPEN_REDIS}"),
    )?;
    let before = levers(guest, &[REDIS])?;
    let _client = Client::start()?;
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let untouched = number(guest, REQUESTS)?;
        shell(guest, "systemctl start gleanerd")?;
        let helped = until_polling(guest)?;
        checks.that("status: idle vCPUs poll, and redis has the evidence", helped.0, helped.1);
        ratios.push(number(guest, REQUESTS)? / untouched);
        let why = shell(guest, &format!("gleaner why {REDIS}"))?;
        let kept = why.lines().rev().find(|line| line.contains("kept") && line.contains(" times "));
        checks.that("why has the decision and its numbers", kept.is_some(), kept.unwrap_or(&why));
        shell(guest, "systemctl stop gleanerd")?;
        let after = levers(guest, &[REDIS])?;
        let found = if before == after { "equal".to_owned() } else { format!("{before} became {after}") };
        checks.that("stopped: the levers are as before", before == after, found);
    }
    checks.equal("stopped: idle vCPUs poll for, in ns", &shell(guest, LIMIT)?.as_str(), &"0");
    checks.ratios("redis with one connection, to the stopped daemon", &ratios, "×", Target::AtLeast(1.0));
    Ok(())
}

/// A client of redis with one connection, in the host.
struct Client(Child);

impl Client {
    fn start() -> Result<Self> {
        fs::create_dir_all(DISK).map_err(Error::file("make", DISK))?;
        tool::run(Command::new("mount").args(["-t", "squashfs", "-o", "ro", GUESTS_DISK, DISK]))?;
        let mut command = Command::new("chroot");
        command.args([
            DISK,
            "redis-benchmark",
            "-h",
            GUEST_ADDRESS,
            "-t",
            "get",
            "-c",
            "1",
            "-n",
            "100000000",
        ]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self).map_err(|error| tool::cannot_start(&command, error))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until vCPUs poll for redis, proven. Returns whether they do, and what the status says then.
fn until_polling(guest: &Guest) -> Result<(bool, String)> {
    let end = Instant::now() + DECIDES_WITHIN;
    loop {
        let status = status(guest)?;
        let redis = workload(&status, REDIS).unwrap_or(&Value::Null);
        let retention = &status["machine"]["retention"];
        let polling = ["haltpoll", "qos-poll"].iter().any(|method| retention["method"] == *method);
        let holds = polling && !redis["evidence"].is_null();
        if holds || Instant::now() > end {
            return Ok((holds, format!("{retention}; {}", describe(redis))));
        }
        thread::sleep(INTERVAL);
    }
}
