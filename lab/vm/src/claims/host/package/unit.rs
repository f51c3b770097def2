//! The unit: what it serves, what it may do, and what systemd does with it.

use super::served::{PORT, until};
use super::{Machine, NAME, loaded, run, shell};
use crate::claims::Checks;
use crate::claims::packaged::{about_to_restart, main_pid, scrape};
use crate::error::Result;
use crate::vm::Guest;

/// `CAP_BPF`, `CAP_PERFMON`, `CAP_SYS_PTRACE`, `CAP_DAC_READ_SEARCH`; `include/uapi/linux/capability.h`.
const KEPT: u64 = 1 << 39 | 1 << 38 | 1 << 19 | 1 << 2;
/// With `CAP_SYS_ADMIN`.
const GIVEN: u64 = KEPT | 1 << 21;
/// Time of the pCPUs.
const PCPU: &str = "gleaner_host_pcpu_seconds_total";
/// What is in the messages of a program to which something is refused.
const COMPLAINTS: [&str; 6] = ["cannot", "not permitted", "denied", "refused", "error", "panicked"];

/// Enables it: it serves, and says who it is.
pub(super) fn enable(host: &Guest, checks: &mut Checks, version: &str) -> Result<()> {
    let output = run(host, "systemctl enable -q --now gleaner-host")?;
    let state = shell(host, "systemctl is-enabled gleaner-host; systemctl is-active gleaner-host; true")?;
    let starts = output.success() && state == "enabled\nactive";
    checks.that("systemd enables and starts it", starts, state.replace('\n', ", ") + output.errors().trim());
    let serves = until(host, |now| now.value("gleaner_host_build_info").is_some())?;
    let says = serves.now.line("gleaner_host_build_info");
    // The package's version is that of the program and the packaging's own.
    let upstream = version.rsplit_once('-').map_or(version, |(upstream, _)| upstream);
    checks.that("it serves, and says its version", says.contains(&format!("\"{upstream}\"")), says);
    checks.equal("without a VM: gleaner_host_vms", &serves.now.value("gleaner_host_vms"), &Some(0.0));
    Ok(())
}

/// What the sandbox lets it do, and what it has given up by itself.
pub(super) fn sandbox(machine: &Machine<'_>, checks: &mut Checks) -> Result<()> {
    let host = machine.host;
    let loaded = loaded(host)?;
    let added = loaded.lines().filter(|line| !machine.before.lines().any(|other| other == *line));
    let added: Vec<&str> = added.collect();
    checks.that("its BPF programs are loaded", !added.is_empty(), added.join(" "));
    let first = until(host, |now| now.value(PCPU).is_some())?.now.value(PCPU).unwrap_or(0.0);
    let more = until(host, |now| now.value(PCPU) > Some(first))?;
    let grew = format!("{first:.1} s → {:.1} s", more.now.value(PCPU).unwrap_or(0.0));
    checks.that("they count: the pCPUs' seconds grow", more.holds, grew);
    // For this it had CAP_SYS_ADMIN.
    let cost = more.now.line("gleaner_host_following_ratio");
    checks.that("it knows what they cost", more.now.value("gleaner_host_following_ratio").is_some(), cost);
    for (what, set, expected) in [
        ("systemd has given it CAP_SYS_ADMIN: CapBnd", "CapBnd", GIVEN),
        ("it has given that up: CapEff", "CapEff", KEPT),
        ("it cannot take it back: CapPrm", "CapPrm", KEPT),
    ] {
        let of_it = format!("/proc/$({})/status", main_pid(NAME));
        let found = shell(host, &format!("awk '/^{set}:/ {{ print $2 }}' {of_it}"))?;
        checks.equal(what, &found, &format!("{expected:016x}"));
    }
    Ok(())
}

/// What systemd says of the unit while nothing happens to it.
pub(super) fn warnings(host: &Guest, checks: &mut Checks) -> Result<()> {
    let found = shell(host, "journalctl -q -u gleaner-host -p warning -o cat --no-pager")?;
    checks.equal("the journal has no warning of systemd about the unit", &found.as_str(), &"");
    Ok(())
}

/// SIGKILL: its programs are gone at once, and systemd starts it again.
pub(super) fn killed(machine: &Machine<'_>, checks: &mut Checks) -> Result<()> {
    let (host, pid) = (machine.host, main_pid(NAME));
    let first = shell(host, &pid)?;
    let kill = "systemctl kill --kill-whom=main --signal=KILL gleaner-host";
    let between = shell(host, &format!("{kill} && {}; {pid}", about_to_restart(NAME)))?;
    checks.equal("killed: it is gone until systemd starts it again", &between.as_str(), &"0");
    let serves = until(host, |now| now.value("gleaner_host_build_info").is_some())?;
    let second = shell(host, &pid)?;
    let restarts = shell(host, "systemctl show -p NRestarts --value gleaner-host")?;
    checks.that(
        "killed: systemd starts it again, and it serves",
        serves.holds && first != second && restarts == "1",
        format!("process {first} → {second}, {restarts} restart"),
    );
    Ok(())
}

/// Stopped, it is gone, and so are its programs. Until then nothing was refused to it: what it prints has no level.
pub(super) fn stop(machine: &Machine<'_>, checks: &mut Checks) -> Result<()> {
    let host = machine.host;
    shell(host, "systemctl stop gleaner-host")?;
    let state = shell(host, "systemctl show -p ActiveState -p Result gleaner-host")?;
    checks.equal("stopped", &state.as_str(), &"Result=success\nActiveState=inactive");
    let answered = scrape(host, PORT)?.success();
    checks.that("stopped: nobody listens", !answered, format!("a connection succeeds: {answered}"));
    let says = shell(host, "journalctl -q _SYSTEMD_UNIT=gleaner-host.service -o cat --no-pager")?;
    let complains = says.lines().any(|line| COMPLAINTS.iter().any(|word| line.contains(word)));
    let starts = says.matches(&format!("the metrics are at http://127.0.0.1:{PORT}/metrics")).count();
    checks.that(
        "it has said where it serves at both starts, and complained of nothing",
        starts == 2 && !complains,
        says.replace('\n', "; "),
    );
    machine.as_before(checks, "stopped")
}
