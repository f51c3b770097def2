//! What `gleaner-host sched` says and does.

use std::fs;
use std::process::{Command, Output};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{endless, state, wait_for};
use crate::claims::Checks;
use crate::error::{Error, Result};
use crate::vm::Guest;

const ONLINE: &str = "/sys/devices/system/cpu/cpu3/online";

/// Starts, asks, changes and ends the scheduler, with this guest on the host.
pub(super) fn prove(checks: &mut Checks, guest: &Guest) -> Result<()> {
    let name = guest.spec().name.as_str();
    // By a shell that ends: the scheduler outlives whoever started it.
    let start = Command::new("sh").args(["-c", "gleaner-host sched start --rules resched-dp"]).output();
    works(checks, "sched start", &start.map_err(Error::system("start gleaner-host"))?);
    checks.equal("the kernel's state after sched start", &state(), &"enabled".to_owned());
    let again = sched(&["start"])?;
    checks.that("sched start beside it is refused", again.status.code() == Some(1), said(&again));

    guest.run(["true"])?;
    let pid = u64::from(guest.pid());
    let known = wait_for(|| vm(pid).is_some_and(|vm| vm["vcpus"] == guest.spec().cpus.count()));
    checks.that("sched status has the guest's vCPUs", known, text(vm(pid)));
    works(checks, "sched set, for all", &sched(&["set", "--rules", "tlb-co", "--allowance", "6ms"])?);
    works(checks, "sched set, for the guest", &sched(&["set", "--vm", &format!("{name}=off")])?);
    let before = in_force(pid);

    let restarted = offline_and_back();
    fs::write(ONLINE, "1").map_err(Error::file("write", ONLINE))?;
    checks.that("it restarts when a pCPU goes offline and comes back", restarted?, state());
    guest.run(["true"])?;
    let kept = before.is_some() && wait_for(|| in_force(pid) == before);
    checks.that(
        "what was set is still in force",
        kept,
        format!("{}, then {}", text(before.clone()), text(in_force(pid))),
    );

    // Its threads wake each other. Where they hardly do yet, the first experiment ends at once.
    let before = interrupts(guest)?;
    let job = guest.start(endless(&["pipeline", "--set", "granularity=50us"]))?;
    wait_for(|| interrupts(guest).is_ok_and(|now| now > before + 1000));
    works(checks, "sched set, by experiment", &sched(&["set", "--vm", &format!("{name}=resched-co-auto")])?);
    let compared = wait_for(|| {
        decided(pid).is_some_and(|decided| decided.contains("between two reschedule interrupts"))
    });
    checks.that(
        "resched-co-auto says what it compared and decided",
        compared,
        text(decided(pid).map(Value::from)),
    );
    job.signal(Signal::SIGKILL)?;
    job.wait()?;

    works(checks, "sched stop", &sched(&["stop"])?);
    checks.equal("the kernel's state after sched stop", &state(), &"disabled".to_owned());
    Ok(())
}

/// Interrupts that the guest's vCPUs have sent each other.
fn interrupts(guest: &Guest) -> Result<u64> {
    let text = guest.succeed(["cat", "/proc/interrupts"])?;
    let ours =
        text.lines().filter(|line| ["RES:", "CAL:"].iter().any(|kind| line.trim_start().starts_with(kind)));
    Ok(ours.flat_map(str::split_whitespace).filter_map(|word| word.parse::<u64>().ok()).sum())
}

/// Takes the pCPU away and gives it back; the scheduler ends and is there again each time.
fn offline_and_back() -> Result<bool> {
    let mut restarted = true;
    for online in ["0", "1"] {
        let starts = starts();
        fs::write(ONLINE, online).map_err(Error::file("write", ONLINE))?;
        restarted &= wait_for(|| self::starts() > starts && state() == "enabled");
    }
    Ok(restarted)
}

/// How often a scheduler was started since the host's boot.
fn starts() -> u64 {
    let text = fs::read_to_string("/sys/kernel/sched_ext/enable_seq").unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

/// Options of the scheduler, and the rules of this VM.
fn in_force(pid: u64) -> Option<Value> {
    let vm = vm(pid)?;
    Some(json!([status()["scheduler"]["options"], vm["rules"]]))
}

/// What `resched-co-auto` decided last for this VM.
fn decided(pid: u64) -> Option<String> {
    Some(vm(pid)?["decided"].as_str()?.to_owned())
}

/// What the scheduler says of this VM; `None`: it does not know it.
fn vm(pid: u64) -> Option<Value> {
    let status = status();
    status["scheduler"]["vms"].as_array()?.iter().find(|vm| vm["pid"] == pid).cloned()
}

fn text(value: Option<Value>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}

fn status() -> Value {
    let output = sched(&["status", "--json"]);
    output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok()).unwrap_or_default()
}

fn sched(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new("gleaner-host");
    command.arg("sched").args(arguments).output().map_err(Error::system("run gleaner-host"))
}

fn works(checks: &mut Checks, what: &str, output: &Output) {
    checks.that(what, output.status.success(), said(output));
}

fn said(output: &Output) -> String {
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    said.concat().trim().replace('\n', "; ")
}
