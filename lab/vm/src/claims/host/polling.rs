//! Halt polling as a lever, on a real KVM: what `set` and `auto` put in force, and that it is as before afterwards.

use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_host::halt_poll::journal::{self, Record};
use gleaner_host::halt_poll::{Decision, Parameters};
use gleaner_kernel::Root;
use nix::sys::signal::Signal;

use super::guest;
use crate::claims::Checks;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::vm::{Lab, Step};

const PROGRAM: &str = "gleaner-host";
const LIMIT: &str = "/sys/module/kvm/parameters/halt_poll_ns";
/// A round, and the rest after it at least.
const DECIDED_FOR: &str = "25s";
/// For a process to put a limit in force.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let found = limit()?;
    let guest = lab.boot(guest("polled", Kernel::V7))?;
    let job = guest.start(
        Step::new(&["gleaner", "workload", "--for", "300s", "wake"]).timeout(Duration::from_secs(400)),
    )?;
    decided(checks)?;
    checks.equal("halt_poll_ns after auto", &limit()?, &found);
    let held = output(&["halt-poll", "set", "0", "--", "cat", LIMIT])?;
    checks.equal("while a command runs under set", &text(&held.stdout), &"0".to_owned());
    checks.equal("halt_poll_ns after set", &limit()?, &found);
    killed(checks, found)?;
    job.signal(Signal::SIGKILL)?;
    job.wait()?;
    guest.power_off()
}

/// `auto` decides by what the VM does, and the journal says the same.
fn decided(checks: &mut Checks) -> Result<()> {
    let auto = output(&["halt-poll", "auto", "--for", DECIDED_FOR, "--json"])?;
    let printed = text(&auto.stdout);
    let decisions = printed.lines().filter_map(|line| serde_json::from_str::<Decision>(line).ok());
    let decisions: Vec<String> = decisions.map(|decision| decision.to_string()).collect();
    checks.that(
        "auto decides, and ends with 0",
        auto.status.success() && !decisions.is_empty(),
        decisions.first().cloned().unwrap_or_else(|| text(&auto.stderr)),
    );
    let records = journal::read(&journal::path());
    let records = records.map_err(|error| failed(error.to_string()))?;
    let written = records.iter().filter_map(|record| match record {
        Record::Decision(decision) => Some(decision.to_string()),
        _ => None,
    });
    checks.that(
        "its journal has the same decisions",
        written.eq(decisions.iter().cloned()),
        decisions.len().to_string(),
    );
    let why = text(&output(&["halt-poll", "why"])?.stdout);
    let last = why.lines().last().unwrap_or_default().to_owned();
    checks.that("why says how it ended", last.contains("ended; everything still held was put back"), last);
    Ok(())
}

/// SIGKILL leaves the limit in force, and `restore` puts it back.
fn killed(checks: &mut Checks, found: u32) -> Result<()> {
    let mut holder = start(&["halt-poll", "set", "1000"])?;
    let in_force = until(1000);
    // SIGKILL, whatever became of it.
    holder.kill().map_err(Error::system("kill gleaner-host"))?;
    holder.wait().map_err(Error::system("wait for gleaner-host"))?;
    let in_force = in_force?;
    checks.equal("halt_poll_ns after SIGKILL for set", &(in_force, limit()?), &(true, 1000));
    let restored = output(&["restore"])?;
    checks.equal("restore ends with", &restored.status.code(), &Some(0));
    checks.equal("halt_poll_ns after restore", &limit()?, &found);
    Ok(())
}

fn until(wanted: u32) -> Result<bool> {
    let started = Instant::now();
    while started.elapsed() < TIMEOUT {
        if limit()? == wanted {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(false)
}

fn limit() -> Result<u32> {
    Ok(Parameters::read(&Root::system()).map_err(|error| failed(error.to_string()))?.halt_poll_ns)
}

fn output(args: &[&str]) -> Result<Output> {
    Command::new(PROGRAM).args(args).output().map_err(Error::system("run gleaner-host"))
}

fn start(args: &[&str]) -> Result<Child> {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdout(Stdio::null());
    command.spawn().map_err(Error::system("run gleaner-host"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn failed(error: String) -> Error {
    Error::Guest { vm: "host".to_owned(), error }
}
