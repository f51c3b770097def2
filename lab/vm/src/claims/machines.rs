//! The lab's own machines: they boot, how fast, and failures in them are reported.

use std::time::Duration;

use crate::claims::{Checks, Claim, ClaimHost, Target};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Lab, Step, VmSpec};
use crate::wire::Exit;

pub(super) const BOOT: Claim = Claim {
    name: "boot",
    group: 0,
    says: "the tiny image boots on each kernel, and the systemd image; pinned vCPUs stay pinned",
    // Its many boots are there for their times, which `make promises` judges; on a busy machine they say nothing.
    quick: false,
    place: ClaimHost::Emulated,
    prove: boot,
};

pub(super) const FAULTS: Claim = Claim {
    name: "faults",
    group: 0,
    says: "a panic, a hang and a timeout in a guest are reported, and no machine is left",
    quick: true,
    place: ClaimHost::Emulated,
    prove: faults,
};

/// Boots of each kernel: one can take a fifth longer than the one before.
const BOOTS: usize = 3;

fn boot(lab: &Lab, checks: &mut Checks) -> Result<()> {
    for kernel in Kernel::ALL {
        let spec = VmSpec::new("boot", Image::Tiny, kernel, Cpus::flat(2)).pinned_to(&[0]);
        // No second try after a hang: whether it boots is the question.
        let boot = || lab.boot_within(spec.clone(), Duration::from_secs(60));
        let mut seconds = Vec::new();
        for _ in 1..BOOTS {
            let guest = boot()?;
            seconds.push(guest.boot_time().as_secs_f64());
            guest.power_off()?;
        }
        let guest = boot()?;
        seconds.push(guest.boot_time().as_secs_f64());
        checks.values(format!("tiny, Linux {kernel}: boots"), &seconds, "s", Target::Reported);
        checks.equal(
            format!("tiny, Linux {kernel}: its vCPUs"),
            &guest.read_text("/sys/devices/system/cpu/online")?,
            &"0-1".to_owned(),
        );
        for thread in guest.vcpu_threads()? {
            let path = format!("/proc/{}/task/{thread}/status", guest.pid());
            let status = std::fs::read_to_string(&path).map_err(Error::file("read", &path))?;
            let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            let what = format!("tiny, Linux {kernel}: a pinned vCPU's thread may run on");
            checks.equal(what, &allowed.map(str::trim), &Some("0"));
        }
        guest.power_off()?;
    }
    let guest = lab.boot(VmSpec::new("boot-systemd", Image::Systemd, Kernel::V6_12, Cpus::flat(4)))?;
    let seconds = guest.boot_time().as_secs_f64();
    checks.values("systemd, Linux 6.12: boots", &[seconds], "s", Target::Reported);
    let init = guest.read_text("/proc/1/comm")?;
    checks.equal("systemd, Linux 6.12: process 1", &init, &"systemd".to_owned());
    for program in ["redis-server", "sysbench", "gleaner"] {
        let version = guest.run(Step::new(&[program, "--version"]))?;
        checks.that(format!("systemd, Linux 6.12: has {program}"), version.success(), version.text().trim());
    }
    let failed = guest.succeed(Step::new(&["systemctl", "--failed", "--plain", "--no-legend"]))?;
    checks.equal("systemd, Linux 6.12: failed units", &failed.trim(), &"");
    guest.power_off()
}

fn faults(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let tiny = |name: &str| VmSpec::new(name, Image::Tiny, Kernel::V6_12, Cpus::flat(2));
    let guest = lab.boot(tiny("panic"))?;
    let pid = guest.pid();
    let panicked = guest.run(Step::shell("echo c > /proc/sysrq-trigger"));
    let reported = matches!(&panicked, Err(Error::Panic { console, .. }) if console.contains("sysrq"));
    let said = panicked.map_or_else(|error| error.to_string(), |output| format!("{output:?}"));
    checks.that("a kernel panic is reported with its last lines", reported, first_line(&said));
    drop(guest);
    checks.that("no QEMU is left of it", !is_alive(pid), format!("process {pid}"));

    let guest = lab.boot(tiny("timeout"))?;
    let output = guest.run(
        Step::shell("echo begun; : > /begun; sleep 1000").timeout_from("/begun", Duration::from_secs(1)),
    )?;
    let exact = output.exit == Exit::TimedOut && output.text() == "begun\n";
    checks.that("a step that takes too long is killed, its output kept", exact, output.exit.to_string());
    let failed = guest.succeed(Step::shell("echo why >&2; exit 3"));
    let said = failed.err().map(|error| error.to_string()).unwrap_or_default();
    checks.that("a step's failure is reported with its error output", said.contains("status 3: why"), said);
    let pid = guest.pid();
    drop(guest);
    checks.that("a dropped machine is gone", !is_alive(pid), format!("process {pid}"));

    let hung = lab.boot_within(tiny("hang").cmdline(&["rdinit=/bin/sh"]), Duration::from_secs(8));
    let reported = matches!(hung, Err(Error::Hung { .. } | Error::Panic { .. }));
    let said = hung.err().map(|error| error.to_string()).unwrap_or_default();
    checks.that("a machine that does not boot is killed and reported", reported, first_line(&said));
    Ok(())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn is_alive(pid: u32) -> bool {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), None).is_ok()
}
