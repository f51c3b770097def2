//! It comes and goes.

use std::process::Command;

use nix::sys::signal::Signal;

use super::{Scheduler, control, guest, state};
use crate::claims::{Checks, Target};
use crate::error::{Error, Result};
use crate::vm::{Guest, Lab};

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let before = lab.boot(guest("before"))?;
    let mut first = Scheduler::start(&[])?;
    checks.equal("the kernel's state", &state(), &"enabled".to_owned());
    let second = Command::new("scx_gleaner").output().map_err(Error::system("start scx_gleaner"))?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    checks.that("a second one is refused", !second.status.success() && said.contains("gleaner"), said.trim());
    answers(checks, "a guest that ran before", &before);
    let during = lab.boot(guest("during"))?;
    checks.values("a guest boots under it", &[during.boot_time().as_secs_f64()], "s", Target::Reported);
    let (status, said) = first.end(Signal::SIGTERM)?;
    checks.that("SIGTERM ends it with 0", status.success(), format!("{status}: {}", said.trim()));
    answers(checks, "a guest that was booted under it", &during);
    let mut killed = Scheduler::start(&["--rules", "off"])?;
    killed.end(Signal::SIGKILL)?;
    checks.equal("the kernel's state after SIGKILL", &state(), &"disabled".to_owned());
    answers(checks, "after SIGKILL, a guest", &before);
    control::prove(checks, &before)?;
    before.power_off()?;
    during.power_off()
}

fn answers(checks: &mut Checks, who: &str, guest: &Guest) {
    match guest.run(["true"]) {
        Ok(output) => checks.that(format!("{who}: answers"), output.success(), output.exit.to_string()),
        Err(error) => checks.that(format!("{who}: answers"), false, error.to_string()),
    }
}
