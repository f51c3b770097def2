//! The vCPUs of a unit that systemd runs: `AllowedCPUs=`, set at run time and taken back without a trace.
//!
//! systemd enables the cpuset controller of version 2 for a unit's group only while the unit, or one beside it, has
//! `AllowedCPUs=`, and writes `cpuset.cpus` itself, again whenever another property of the unit changes (`src/core/cgroup.c`,
//! `cgroup_context_apply`). So a set that is to last has to be known to systemd. Version 1 has no such property there.
//!
//! To undo, the property is emptied first: systemd takes the controller away again, and the group's CPUs with it, where no
//! other unit needs it. That and each `systemctl set-property --runtime` leave a drop-in: in `/run/systemd/system.control`,
//! and of a transient unit in `/run/systemd/transient` (`unit_drop_in_dir`). It is removed, and the unit files are read
//! anew, as `systemctl revert` does, so that whatever else sets the property is in force again.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_policy::CpuSet;

use super::systemctl::{self, RELOAD, Refusal, SHORTLY};
use super::{LeverError, Target, Value, cpuset};
use crate::Root;

/// Where systemd keeps what is set at run time.
const CONTROL_DIRS: [&str; 2] = ["/run/systemd/system.control", "/run/systemd/transient"];
const DROP_IN: &str = "50-AllowedCPUs.conf";
/// systemd carries out a change of a property after it has answered.
const CARRY_OUT_TIME: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(1);

/// What systemd knows of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitState {
    /// Its control group, from the hierarchy's root; empty if it is not running.
    pub control_group: String,
    /// Its CPUs, if `AllowedCPUs=` is set.
    pub allowed: Option<CpuSet>,
    /// Which of the other properties that choose its CPUs are set: `StartupAllowedCPUs=`, `CPUAffinity=`.
    pub others: Vec<&'static str>,
    /// Whether there is such a unit.
    pub is_loaded: bool,
}

impl UnitState {
    /// Asks systemd.
    ///
    /// # Errors
    /// [`LeverError::Systemd`]: it does not answer, or not as expected.
    pub fn read(root: &Root, unit: &str) -> Result<Self, LeverError> {
        let failed =
            |reason| LeverError::Systemd { unit: unit.to_owned(), operation: "read AllowedCPUs= of", reason };
        let names = "LoadState,ControlGroup,AllowedCPUs,StartupAllowedCPUs,CPUAffinity";
        let text =
            systemctl::ask(root, &["show", "--property", names, "--", unit], SHORTLY).map_err(failed)?;
        Self::parse(&text).map_err(failed)
    }

    fn parse(text: &str) -> Result<Self, Refusal> {
        let mut state = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once('=') else { continue };
            match name {
                "LoadState" => state.is_loaded = value == "loaded",
                "ControlGroup" => value.clone_into(&mut state.control_group),
                "AllowedCPUs" => state.allowed = cpus(value)?,
                "StartupAllowedCPUs" if !value.is_empty() => state.others.push("StartupAllowedCPUs"),
                "CPUAffinity" if !value.is_empty() => state.others.push("CPUAffinity"),
                _ => {}
            }
        }
        Ok(state)
    }
}

/// systemd separates ranges by spaces.
fn cpus(value: &str) -> Result<Option<CpuSet>, Refusal> {
    let list = value.split_whitespace().collect::<Vec<_>>().join(",");
    if list.is_empty() {
        return Ok(None);
    }
    list.parse().map(Some).map_err(|_| format!("`AllowedCPUs={value}` is not a list of CPUs"))
}

/// See [`Target::read`].
pub(super) fn read(root: &Root, target: &Target, unit: &str) -> Result<Value, LeverError> {
    let state = UnitState::read(root, unit)?;
    if !state.is_loaded {
        return Err(LeverError::Gone { target: target.clone() });
    }
    Ok(state.allowed.map_or(Value::Unset, Value::Cpus))
}

/// Sets the unit's CPUs until the next boot, and waits until they are those of its group.
pub(super) fn set(root: &Root, unit: &str, group: &Path, cpus: &CpuSet) -> Result<(), LeverError> {
    let failed =
        |reason| LeverError::Systemd { unit: unit.to_owned(), operation: "set AllowedCPUs= of", reason };
    let property = format!("AllowedCPUs={cpus}");
    systemctl::ask(root, &["set-property", "--runtime", "--", unit, &property], SHORTLY).map_err(failed)?;
    let end = Instant::now() + CARRY_OUT_TIME;
    while root.read_opt(group.join(cpuset::FILE))?.as_deref() != Some(&cpus.to_string()) {
        if Instant::now() >= end {
            let why = "its group does not get them; is the cpuset controller disabled (DisableControllers=)?";
            return Err(failed(why.to_owned()));
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}

/// Removes what was set at run time, so that the unit has what its files say. The group's file is not touched: where
/// another unit needs the controller, it keeps its CPUs.
pub(super) fn unset(root: &Root, unit: &str) -> Result<(), LeverError> {
    // If it fails, the property still has its former value once the files were read.
    let _ = systemctl::ask(root, &["set-property", "--runtime", "--", unit, "AllowedCPUs="], SHORTLY);
    for drop_in in drop_ins(unit) {
        remove(root, &drop_in)?;
    }
    reload(root, unit)
}

/// Removes the drop-ins that hold one of the values `ours`, although the property has another one, which somebody set
/// elsewhere, or the unit is gone.
pub(super) fn forget(root: &Root, unit: &str, ours: &[Value]) -> Result<(), LeverError> {
    let mut removed = false;
    for drop_in in drop_ins(unit) {
        let text = root.read_opt(&drop_in)?.unwrap_or_default();
        let value = text.lines().rev().find_map(|line| line.strip_prefix("AllowedCPUs="));
        let value = value.and_then(|value| cpus(value).ok());
        if value.is_some_and(|value| ours.contains(&value.map_or(Value::Unset, Value::Cpus))) {
            removed |= remove(root, &drop_in)?;
        }
    }
    if removed { reload(root, unit) } else { Ok(()) }
}

/// Has systemd read its files anew.
fn reload(root: &Root, unit: &str) -> Result<(), LeverError> {
    let operation = "take back AllowedCPUs= of";
    let failed = |reason| LeverError::Systemd { unit: unit.to_owned(), operation, reason };
    systemctl::ask(root, &["daemon-reload"], RELOAD).map(drop).map_err(failed)
}

fn drop_ins(unit: &str) -> [PathBuf; 2] {
    CONTROL_DIRS.map(|dir| PathBuf::from(format!("{dir}/{unit}.d/{DROP_IN}")))
}

/// Removes a drop-in, and its directory if nothing else is there. `Ok(false)` if it does not exist.
fn remove(root: &Root, drop_in: &Path) -> Result<bool, LeverError> {
    let path = root.path(drop_in);
    match fs::remove_file(&path) {
        Ok(()) => {
            // Not empty: others have set properties, too.
            let _ = path.parent().map(fs::remove_dir);
            Ok(true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(LeverError::io(&Target::File(drop_in.to_owned()), "remove", error)),
    }
}

#[cfg(test)]
mod tests;
