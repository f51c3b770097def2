//! The Debian package `gleaner-host` under a real systemd, on a KVM host with a guest: what its unit lets it do, and what is
//! left of it.
//!
//! The machine is the systemd image with KVM, not the nested host of the other claims, which has no systemd. Its guest is
//! booted by the lab's own program in it.

mod lifecycle;
mod served;
mod unit;

use std::fs;

use nix::sys::signal::Signal;

use self::served::{exits, until};
use crate::claims::Checks;
use crate::claims::packaged::{self, newest, run, shell, version};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Job, Lab, Step, VmSpec};

const NAME: &str = "gleaner-host";
/// Where the package is in the machine.
const DEB: &str = "/root/gleaner-host.deb";
/// Longer than the guest lives, which is killed.
const GUEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3600);

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let deb = newest(NAME)?;
    let spec = VmSpec::new(NAME, Image::Systemd, Kernel::V7, Cpus::flat(2)).hosting(&[Kernel::V7]);
    // Attaching the programs patches the kernel's code.
    let host = &lab.boot(spec.in_turn())?;
    host.write(DEB, 0o644, &fs::read(&deb).map_err(Error::file("read", &deb))?)?;
    let machine = &Machine { host, before: loaded(host)? };
    packaged::install(host, checks, NAME, DEB, NAME)?;
    machine.as_before(checks, "installed")?;
    packaged::security(host, checks, NAME)?;
    unit::enable(host, checks, &version(&deb)?)?;
    unit::sandbox(machine, checks)?;
    unit::warnings(host, checks)?;
    let vm = boot(host)?;
    follows(host, checks, "a VM that starts")?;
    unit::killed(machine, checks)?;
    follows(host, checks, "started again")?;
    end(host, checks, vm)?;
    unit::stop(machine, checks)?;
    lifecycle::remove(machine, checks)?;
    lifecycle::purge(machine, checks)
}

/// A guest whose threads wake each other.
fn boot(host: &Guest) -> Result<Job<'_>> {
    let kernel = Kernel::V7.name();
    let run = ["gleaner-lab", "run", "--kernel", kernel, "--timeout", "3600", "--"];
    let workload = ["gleaner", "workload", "--for", "3600s", "wake"];
    host.start(Step::new(&[&run[..], &workload].concat()).timeout(GUEST_TIMEOUT))
}

/// Checks that the one VM is seen, and its exits are counted.
fn follows(host: &Guest, checks: &mut Checks, what: &str) -> Result<()> {
    let seen = until(host, |now| now.value("gleaner_host_vms") == Some(1.0) && exits(now) > 0.0)?;
    checks.that(format!("{what}: gleaner_host_vms is 1"), seen.holds, seen.now.line("gleaner_host_vms"));
    let first = exits(&seen.now);
    let more = until(host, |now| exits(now) > first)?;
    checks.that(
        format!("{what}: its exits grow"),
        seen.holds && more.holds,
        format!("{first:.0} → {:.0}", exits(&more.now)),
    );
    Ok(())
}

/// Kills the VM, and checks that it is no longer seen. If its process still closes its files when the last vCPU has ended, that
/// is found out a minute later.
fn end(host: &Guest, checks: &mut Checks, vm: Job<'_>) -> Result<()> {
    const UPTIME: &str = "cut -d' ' -f1 /proc/uptime";
    vm.signal(Signal::SIGKILL)?;
    vm.wait()?;
    // QEMU is run by a loader of its own.
    let ended = shell(host, &format!("while pgrep -x ld.so >&2; do sleep 0.1; done; {UPTIME}"))?;
    let gone = until(host, |now| now.value("gleaner_host_vms") == Some(0.0))?;
    let found = shell(host, UPTIME)?;
    checks.that(
        "the VM ends: gleaner_host_vms is 0 again",
        gone.holds,
        format!("{}; ended at {ended} s, seen at {found} s", gone.now.line("gleaner_host_vms")),
    );
    Ok(())
}

/// The machine, and the BPF programs in it before the package was installed.
struct Machine<'a> {
    host: &'a Guest,
    before: String,
}

impl Machine<'_> {
    /// Checks that no other BPF programs are loaded than before. The kernel frees them a while after the last user ended.
    fn as_before(&self, checks: &mut Checks, what: &str) -> Result<()> {
        let settled = format!(
            "for n in $(seq 300); do [ \"$({LOADED})\" = '{}' ] && break; sleep 0.1; done; {LOADED}",
            self.before
        );
        let after = shell(self.host, &settled)?;
        checks.equal(format!("{what}: BPF programs, and /sys/fs/bpf, are as before"), &after, &self.before);
        Ok(())
    }
}

/// The BPF programs by their names in the kernel, without those by which systemd closes units (`sd_`), and what is pinned.
const LOADED: &str = r#"awk '$4 == "[bpf]" && sub(/^bpf_prog_[0-9a-f]+_/, "", $3) && $3 !~ /^sd_/ { print $3 }' \
    /proc/kallsyms | sort; ls -A /sys/fs/bpf"#;

fn loaded(host: &Guest) -> Result<String> {
    shell(host, LOADED)
}
