//! It comes and goes.

use std::process::Command;

use nix::sys::signal::Signal;

use super::{Scheduler, guest, state};
use crate::claims::Checks;
use crate::error::{Error, Result};
use crate::vm::Lab;

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let before = lab.boot(guest("before"))?;
    let first = Scheduler::start(&[])?;
    checks.equal("the kernel's state", &state(), &"enabled".to_owned());
    let second = Command::new("scx_gleaner").output().map_err(Error::system("start scx_gleaner"))?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    checks.that("a second one is refused", !second.status.success() && said.contains("gleaner"), said.trim());
    before.succeed(["true"])?;
    checks.that("a guest that ran before answers", true, "");
    let during = lab.boot(guest("during"))?;
    checks.that("a guest boots under it", true, format!("in {:.1} s", during.boot_time().as_secs_f64()));
    let status = first.end(Signal::SIGTERM)?;
    checks.that("SIGTERM ends it with 0", status.success(), status.to_string());
    during.succeed(["true"])?;
    let killed = Scheduler::start(&["--rules", "off"])?;
    killed.end(Signal::SIGKILL)?;
    checks.equal("the kernel's state after SIGKILL", &state(), &"disabled".to_owned());
    for guest in [before, during] {
        guest.succeed(["true"])?;
        guest.power_off()?;
    }
    Ok(())
}
